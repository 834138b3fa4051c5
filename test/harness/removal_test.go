package harness

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRemoval_Seen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "container")
	_, err := watchRemoval(dir)
	require.ErrorIs(t, err, os.ErrNotExist, "one that does not run")
	require.NoError(t, os.Mkdir(dir, 0o700))
	synctest.Test(t, func(t *testing.T) {
		await, err := watchRemoval(dir)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		removed := make(chan time.Time, 1)
		time.AfterFunc(30*time.Second, func() {
			_ = os.Remove(dir)
			removed <- time.Now()
		})
		at, err := await(ctx)
		require.NoError(t, err)
		require.WithinDuration(t, <-removed, at, removalPoll)
		require.NoError(t, os.Mkdir(dir, 0o700))
		_, err = await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "it stays")
	})
}

func TestRemoval_OnlyContainerd(t *testing.T) {
	for _, name := range []string{"", "containerd://", "cri-o://0123"} {
		_, err := (&System{}).WatchRemoval(name)
		require.ErrorContains(t, err, "none of containerd's", name)
	}
}
