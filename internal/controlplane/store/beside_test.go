package store_test

import (
	"context"
	"strconv"
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
		mine, theirs := make(chan struct{}, 1), make(chan struct{}, 1)
		watching, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, w := range []struct {
			of    *store.Store
			heard chan struct{}
		}{{s, mine}, {other, theirs}} {
			go func() {
				ended <- w.of.Watch(watching, time.Millisecond, func() {
					select {
					case w.heard <- struct{}{}:
					default:
					}
				})
			}()
		}
		heard := func(from *store.Store, by chan struct{}) func() bool {
			n := 0
			return func() bool { // Watch may not have begun
				n++
				require.NoError(t, from.PutSetting(t.Context(), "a", strconv.Itoa(n)))
				return len(by) > 0
			}
		}
		await.Until(t, "the first one is notified", heard(other, mine))
		await.Until(t, "the other is notified", heard(s, theirs))
		stop()
		for range 2 {
			require.NoError(t, await.Receive(t, ended, "the end of Watch"))
		}
		require.NoError(t, other.Close())
		require.NoError(t, s.PutSetting(t.Context(), "a", "d"))
	})
}
