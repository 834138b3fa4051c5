package agents

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// TestAgentTrust_BatchesWrites runs under a clock that passes only while all agents wait.
func TestAgentTrust_BatchesWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), file)
		require.NoError(t, err)
		defer func() { assert.NoError(t, s.Close()) }()
		var transactions atomic.Int64
		s.Observed = func(time.Duration, bool) { transactions.Add(1) }
		a := &agentTrust{store: s, written: time.Now()} // another one just came
		const many = 64
		var want []store.AgentTrust
		for i := range many {
			id := fmt.Sprintf("many%02d", i)
			require.NoError(t, s.InsertAgent(t.Context(), store.Agent{ID: id, Name: id, ClusterUID: id, EdgeAddress: "edge:1"}))
			want = append(want, store.AgentTrust{AgentID: id, Bundle: "b", Issuer: "i"})
		}
		tell := func() int64 {
			before := transactions.Load()
			var group errgroup.Group
			for _, trust := range want {
				group.Go(func() error { return a.note(t.Context(), trust) })
			}
			require.NoError(t, group.Wait())
			return transactions.Load() - before
		}
		assert.Equal(t, int64(1), tell())
		got, err := s.AgentTrusts(t.Context())
		require.NoError(t, err)
		assert.ElementsMatch(t, want, got, "who was answered is written")
		assert.Zero(t, tell(), "and has nothing new to say")

		want[0].Bundle = "another"
		assert.Equal(t, int64(1), tell())
		known, err := s.AgentTrust(t.Context(), want[0].AgentID)
		require.NoError(t, err)
		assert.Equal(t, want[0], known)
	})
}

// TestAgentTrust_WrittenAfterCancel cancels the call that writes for the others.
func TestAgentTrust_WrittenAfterCancel(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		s := storetest.Open(t, &databases, on)
		require.NoError(t, s.InsertAgent(t.Context(), store.Agent{ID: "a1", Name: "shop", ClusterUID: "u", EdgeAddress: "edge:1"}))
		a := &agentTrust{store: s}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		trust := store.AgentTrust{AgentID: "a1", Bundle: "b", Issuer: "i"}
		if err := a.write(gone, trust); err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		known, err := s.AgentTrust(t.Context(), "a1")
		require.NoError(t, err)
		assert.Equal(t, trust, known)
	})
}

func TestAgentTrust_RetriesFailedWrite(t *testing.T) {
	s, err := datadir.Data{Dir: t.TempDir()}.OpenStore(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	a := &agentTrust{store: s}
	for range 2 {
		require.Error(t, a.note(t.Context(), store.AgentTrust{AgentID: "a1", Bundle: "b", Issuer: "i"}))
	}
}

var databases postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop).Run()) }
