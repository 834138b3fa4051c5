package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestStore_Beside: each part is notified of the other's changes, and its end leaves the database
// open.
func TestStore_Beside(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		other := s.Beside()
		mine, theirs := make(chan struct{}, 100), make(chan struct{}, 100)
		watching, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, w := range []struct {
			of    *store.Store
			heard chan struct{}
		}{{s, mine}, {other, theirs}} {
			go func() { ended <- w.of.Watch(watching, time.Millisecond, func() { w.heard <- struct{}{} }) }()
		}
		require.NoError(t, other.PutSetting(t.Context(), "a", "b"))
		await.Receive(t, mine, "word of the other's change")
		require.NoError(t, s.PutSetting(t.Context(), "a", "c"))
		await.Receive(t, theirs, "word of the first one's change")
		stop()
		for range 2 {
			require.NoError(t, await.Receive(t, ended, "the end of Watch"))
		}
		require.NoError(t, other.Close())
		require.NoError(t, s.PutSetting(t.Context(), "a", "d"))
	})
}
