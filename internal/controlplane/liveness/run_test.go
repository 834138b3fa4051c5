package liveness

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestLiveness_GathersArrivals runs under a clock that passes only while all wait.
func TestLiveness_GathersArrivals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), file)
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close()) }()
		const many = 10
		for i := range many {
			id := fmt.Sprintf("a%d", i)
			require.NoError(t, s.InsertAgent(t.Context(), store.Agent{ID: id, Name: id, ClusterUID: id, State: announce.StatePending, EdgeAddress: "edge:1", RegisteredAt: time.Now()}))
		}
		var transactions atomic.Int64
		s.Observed = func(time.Duration, bool) { transactions.Add(1) }
		l := New(s, directory.Directory{AgentsDomain: "agents"}, Config{Log: zerolog.Nop(), Now: time.Now, HeartbeatInterval: time.Hour})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		announced := func() int {
			synctest.Wait()
			n, err := s.OutboxLength(t.Context())
			require.NoError(t, err)
			return n
		}

		l.TunnelUp("a0")
		require.Equal(t, 1, announced(), "one that comes alone does not wait")
		for i := range many - 1 {
			l.TunnelUp(fmt.Sprintf("a%d", i+1))
			require.Equal(t, 1, announced())
			time.Sleep(GatherFor / many)
		}
		time.Sleep(GatherFor / many)
		require.Equal(t, many, announced())
		require.Equal(t, int64(2), transactions.Load())
		time.Sleep(2 * GatherFor)
		l.TunnelDown("a0")
		time.Sleep(lookEvery)
		require.Equal(t, many+1, announced(), "and who goes is announced when it is looked anyway")
		stop()
		require.NoError(t, <-ended)
	})
}
