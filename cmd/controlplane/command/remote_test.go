package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// servingData runs a control plane in the process until the test ends.
func servingData(t *testing.T) (data datadir.Data, api string) {
	t.Helper()
	data = datadir.Data{Dir: t.TempDir(), Database: store.Postgres{URL: newURL(t)}}
	cp, err := controlplane.New(t.Context(), controlplane.Config{
		DataDir: data.Dir, Database: data.Database, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	await.Background(t, "the control plane", cp.Run)
	return data, cp.Advertised().API
}

// TestCredentials_RenewedByCommand renews due credentials in their file, through a symbolic link.
func TestCredentials_RenewedByCommand(t *testing.T) {
	data, _ := servingData(t)
	admin, err := administration.Open(t.Context(), data, func() time.Time { return time.Now().Add(-50 * time.Minute) })
	require.NoError(t, err)
	made, err := admin.Operators.Create(t.Context(), administration.OperatorOptions{Name: "alice", Role: administration.RoleViewer, TTL: time.Hour})
	require.NoError(t, errors.Join(err, admin.Close()))
	kept := t.TempDir()
	file, link := filepath.Join(kept, "alice.json"), filepath.Join(t.TempDir(), "link.json")
	require.NoError(t, made.Write(file))
	require.NoError(t, os.Symlink(file, link))
	run := func() string {
		var out, complaints bytes.Buffer
		require.Equal(t, 0, execute(t.Context(), []string{"token", "list", "--credentials", link}, streams{&out, &complaints}), complaints.String())
		return complaints.String()
	}
	assert.NotContains(t, run(), "warning")
	renewed, err := administration.LoadCredentials(file)
	require.NoError(t, err)
	assert.NotEqual(t, made.Certificate, renewed.Certificate)
	assert.Equal(t, made.Key, renewed.Key)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays one")
	run()
	again, err := administration.LoadCredentials(file)
	require.NoError(t, err)
	assert.Equal(t, renewed.Certificate, again.Certificate, "not due")
}
