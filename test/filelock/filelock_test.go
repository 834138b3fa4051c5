package filelock

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestLock_One(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := Try(path)
	require.NoError(t, err)
	require.NotNil(t, first)
	second, err := Try(path)
	require.NoError(t, err)
	assert.Nil(t, second)

	// To hold a file that was removed is not to hold the lock.
	require.NoError(t, os.Remove(path))
	third, err := Try(path)
	require.NoError(t, err)
	require.NotNil(t, third)
	require.NoError(t, first.Close())
	require.NoError(t, third.Close())
}

func TestLock_Wait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Wait(t.Context(), path, func() { t.Error("no process had the lock") })
	require.NoError(t, err)

	waits := make(chan struct{})
	got := make(chan error, 1)
	go func() {
		again, err := Wait(context.Background(), path, func() { close(waits) })
		if err == nil {
			err = again()
		}
		got <- err
	}()
	await.Closed(t, waits, "the second to wait")
	require.NoError(t, unlock())
	require.NoError(t, await.Receive(t, got, "the lock of the second"))
}

func TestLock_WaitEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Wait(t.Context(), path, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, unlock()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Wait(ctx, path, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Contains(t, err.Error(), path)
}
