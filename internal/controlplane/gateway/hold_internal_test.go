package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// Requests wait together for an agent that restarts, and not at all for one that is gone.
func TestHolder_WaitsForRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests, patience = 20, 5 * time.Second
		var up atomic.Bool
		var dials atomic.Int64
		h := newHolder(func(context.Context, string) (net.Conn, error) {
			dials.Add(1)
			if !up.Load() {
				return nil, server.ErrNotConnected
			}
			near, _ := net.Pipe()
			return near, nil
		}, patience)
		dial := func() <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := h.dialAgent(t.Context(), "a1")
				done <- err
			}()
			return done
		}
		var held []<-chan error
		for range requests {
			held = append(held, dial())
		}
		time.Sleep(3 * time.Second) // of the bubble
		assert.LessOrEqual(t, dials.Load(), int64(2*requests+30), "one request at a time tries")
		up.Store(true)
		for _, done := range held {
			require.NoError(t, <-done)
		}
		up.Store(false)
		began := time.Now()
		require.ErrorIs(t, <-dial(), server.ErrNotConnected)
		assert.Equal(t, patience, time.Since(began))
		time.Sleep(holdWithin)
		began = time.Now()
		require.ErrorIs(t, <-dial(), server.ErrNotConnected)
		assert.Zero(t, time.Since(began))
	})
}
