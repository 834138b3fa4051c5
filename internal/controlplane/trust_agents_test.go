package controlplane

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestManyTellWhatTheyHaveOfARotationAtOnce(t *testing.T) {
	l := newLives(t)
	var transactions atomic.Int64
	l.store.Observed = func(time.Duration, bool) { transactions.Add(1) }
	a := &agentTrust{store: l.store, written: time.Now()} // somebody else just came
	const many = 64
	var want []store.AgentTrust
	for i := range many {
		id := fmt.Sprintf("many%02d", i)
		require.NoError(t, l.store.InsertAgent(t.Context(), store.Agent{ID: id, Name: id, ClusterUID: id, EdgeAddress: "edge:1"}))
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
	assert.Less(t, tell(), int64(many/4))
	got, err := l.store.AgentTrusts(t.Context())
	require.NoError(t, err)
	assert.ElementsMatch(t, want, got, "who was answered is written")
	assert.Zero(t, tell(), "and has nothing new to say")

	want[0].Bundle = "another"
	assert.Equal(t, int64(1), tell())
	known, err := l.store.AgentTrust(t.Context(), want[0].AgentID)
	require.NoError(t, err)
	assert.Equal(t, want[0], known)
}

// TestWhoGivesUpIsStillWritten has the call end of the one who writes for others.
func TestWhoGivesUpIsStillWritten(t *testing.T) {
	l := newLives(t)
	a := &agentTrust{store: l.store}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	trust := store.AgentTrust{AgentID: "a1", Bundle: "b", Issuer: "i"}
	if err := a.write(gone, trust); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	known, err := l.store.AgentTrust(t.Context(), "a1")
	require.NoError(t, err)
	assert.Equal(t, trust, known)
}

func TestWhatWasNotWrittenIsNotKnown(t *testing.T) {
	s, err := Data{Dir: t.TempDir(), Database: newDatabase(t)}.openStore(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	a := &agentTrust{store: s}
	for range 2 {
		require.Error(t, a.note(t.Context(), store.AgentTrust{AgentID: "a1", Bundle: "b", Issuer: "i"}))
	}
}
