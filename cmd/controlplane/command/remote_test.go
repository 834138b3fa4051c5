package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// serving runs a control plane in the process until the test ends.
func serving(t *testing.T, agents ...string) (dir string) {
	t.Helper()
	return servingData(t, agents...).Dir
}

// servingData is serving, with the database.
func servingData(t *testing.T, agents ...string) datadir.Data {
	t.Helper()
	data := datadir.Data{Dir: t.TempDir(), Database: store.Postgres{URL: newURL(t)}}
	cp, err := controlplane.New(t.Context(), controlplane.Config{
		DataDir: data.Dir, Database: data.Database, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0", Version: "the served version", Log: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cp.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, await.Receive(t, done, "the end of the control plane"))
	})
	for _, name := range agents {
		require.NoError(t, register(t.Context(), data, cp.Advertised().API, name))
	}
	return data
}

func TestCommands_Remote(t *testing.T) {
	dir := serving(t, "shop")
	t.Setenv("PIPEOPS_DATA_DIR", filepath.Join(t.TempDir(), "none"))
	t.Setenv(flags.EnvDatabase, "")
	t.Setenv(flags.EnvOperator, filepath.Join(dir, controlplane.FileFirstOperator))
	run := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, err bytes.Buffer
		assert.Equal(t, code, execute(t.Context(), args, streams{&out, &err}), "%v: %s", args, err.String())
		return out.String(), err.String()
	}
	out, _ := run(0, "version", "-o", "json")
	var found versions
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	assert.Empty(t, found.ControlPlane.Error)
	assert.Equal(t, "the served version", found.ControlPlane.Version)
	out, _ = run(0, "replica", "list")
	assert.Regexp(t, `ready +yes +0 +the served version`, out)
	out, _ = run(0, "agent", "list")
	assert.Contains(t, out, "shop")
	out, _ = run(0, "agent", "get", "shop")
	assert.Contains(t, out, "Kubernetes:")
	run(0, "agent", "timeline", "shop")
	run(0, "agent", "audit", "shop")
	run(0, "agent", "label", "shop", "env=prod")
	out, _ = run(0, "token", "create", "--name", "remote", "-o", "json")
	var token struct{ Token, ID string }
	require.NoError(t, json.Unmarshal([]byte(out), &token))
	assert.NotEmpty(t, token.Token)
	run(0, "token", "rotate", token.ID)
	out, _ = run(0, "token", "list")
	assert.Contains(t, out, "remote")
	builder := filepath.Join(t.TempDir(), "builder.json")
	run(0, "runner", "create", "builder", "-o", builder, "--agents", "env=prod")
	run(0, "runner", "grant", "builder", "-o", builder, "--agents", "", "--force")
	out, _ = run(0, "runner", "list")
	assert.Contains(t, out, "builder")
	run(0, "runner", "revoke", "builder")
	run(0, "webhook", "create", "pager", "--url", "https://pager.example.com/")
	run(0, "webhook", "deliveries", "pager")
	run(0, "webhook", "rotate", "pager")
	run(0, "webhook", "delete", "pager")
	run(0, "gateway", "grant", "create", "www.example.com", "shop")
	run(0, "gateway", "grant", "list")
	run(0, "gateway", "grant", "delete", "www.example.com")
	run(0, "routes", "shop")
	run(0, "ca", "get")
	out, _ = run(0, "certificate", "list", "--kind", "operator")
	assert.Contains(t, out, "first start")
	run(0, "ca", "rotate", "start", "--dry-run")
	_, err := run(exitFailure, "agent", "delete", "shop")
	assert.Contains(t, err, "is not revoked\n  fix: run")
	_, err = run(exitFailure, "dead-letter", "list")
	assert.Contains(t, err, "has no broker")

	viewer := filepath.Join(t.TempDir(), "viewer.json")
	run(0, "operator", "create", "eve", "-o", viewer)
	run(0, "operator", "list")
	_, err = run(exitFailure, "token", "create", "--credentials", viewer)
	assert.Contains(t, err, "has the role viewer")
	run(0, "agent", "list", "--credentials", viewer)
	run(0, "operator", "revoke", "eve")
	_, err = run(exitFailure, "agent", "list", "--credentials", viewer)
	assert.Contains(t, err, "was revoked")
	_, err = run(exitUsage, "ca", "root", "export", "FILE", "--yes", "--credentials", viewer)
	assert.Contains(t, err, "on the data directory alone")

	out, _ = run(0, "operator", "audit", "list")
	assert.Contains(t, out, "rotate-token")
	assert.Contains(t, out, "forbidden")
	out, _ = run(0, "operator", "audit", "verify")
	assert.Contains(t, out, "HEAD")
	assert.NotContains(t, out, "removed")
}

// TestCredentials_RenewedByCommand renews due credentials in their file, through a symbolic link.
func TestCredentials_RenewedByCommand(t *testing.T) {
	admin, err := operators.Open(t.Context(), servingData(t), func() time.Time { return time.Now().Add(-50 * time.Minute) })
	require.NoError(t, err)
	made, err := admin.Operators.Create(t.Context(), operators.OperatorOptions{Name: "alice", Role: operators.RoleViewer, TTL: time.Hour})
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
	renewed, err := operators.LoadCredentials(file)
	require.NoError(t, err)
	assert.NotEqual(t, made.Certificate, renewed.Certificate)
	assert.Equal(t, made.Key, renewed.Key)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays one")
	run()
	again, err := operators.LoadCredentials(file)
	require.NoError(t, err)
	assert.Equal(t, renewed.Certificate, again.Certificate, "not due")
}
