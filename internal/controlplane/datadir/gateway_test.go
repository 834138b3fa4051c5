package datadir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// TestGatewayStorage_WithoutKey restores a backup without the key. A host whose certificate cannot
// be read would never get another one.
func TestGatewayStorage_WithoutKey(t *testing.T) {
	s := storetest.Open(t, nil, postgres.SQLite)
	data := datadir.Data{Dir: t.TempDir()}
	_, err := datadir.GatewayStorage(data, s, time.Now)
	require.ErrorIs(t, err, datadir.ErrNoGateway)

	first, lost, err := datadir.CreateGatewayStorage(t.Context(), data, s, time.Now)
	require.NoError(t, err)
	assert.Zero(t, lost)
	require.NoError(t, first.Store(t.Context(), "certificates/www.example.org", []byte("secret")))
	again, lost, err := datadir.CreateGatewayStorage(t.Context(), data, s, time.Now)
	require.NoError(t, err)
	assert.Zero(t, lost, "the key is kept")
	kept, err := again.Load(t.Context(), "certificates/www.example.org")
	require.NoError(t, err)
	assert.Equal(t, "secret", string(kept))

	require.NoError(t, os.Remove(filepath.Join(data.Dir, "gateway.key")))
	made, lost, err := datadir.CreateGatewayStorage(t.Context(), data, s, time.Now)
	require.NoError(t, err)
	assert.Equal(t, 1, lost)
	_, err = made.Load(t.Context(), "certificates/www.example.org")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
