package liveness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// lives is a liveness whose clock stands still unless it is moved.
type lives struct {
	*Liveness
	t  *testing.T
	at time.Time
}

func newLives(t *testing.T, states ...announce.State) *lives {
	t.Helper()
	s := storetest.Open(t, &databases, postgres.Chosen(t))
	l := &lives{t: t, at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	l.Liveness = New(s, discovery.Directory{AgentsDomain: "agents"}, Config{
		Log: zerolog.Nop(), Now: func() time.Time { return l.at }, OfflineGrace: 5 * time.Second, HeartbeatInterval: 30 * time.Second,
	})
	state := announce.StatePending
	if len(states) > 0 {
		state = states[0]
	}
	a := store.Agent{ID: "a1", Name: "shop", ClusterUID: "u", State: state, EdgeAddress: "edge:1", RegisteredAt: l.at, LastSeen: l.at}
	require.NoError(t, s.InsertAgent(t.Context(), a))
	l.Resume([]store.Agent{a}, 45*time.Second)
	return l
}

// after moves the clock, looks, and says what has been announced so far.
func (l *lives) after(d time.Duration) []announce.Type {
	l.t.Helper()
	l.at = l.at.Add(d)
	l.look(l.t.Context())
	queued, err := l.store.Outbox(l.t.Context(), 100)
	require.NoError(l.t, err)
	types := make([]announce.Type, len(queued))
	for i, q := range queued {
		types[i] = q.Event.Type
	}
	return types
}

var (
	online  = announce.AgentOnline
	offline = announce.AgentOffline
)

func TestLiveness_AnnouncedOnce(t *testing.T) {
	l := newLives(t)
	assert.Empty(t, l.after(time.Hour), "an agent that was never up is pending")
	l.TunnelUp("a1")
	assert.Equal(t, []announce.Type{online}, l.after(0))
	l.Beat("a1", l.at, nil)
	assert.Equal(t, []announce.Type{online}, l.after(time.Minute))
	l.TunnelDown("a1")
	assert.Equal(t, []announce.Type{online}, l.after(4*time.Second))
	assert.Equal(t, []announce.Type{online, offline}, l.after(time.Second))
	assert.Equal(t, []announce.Type{online, offline}, l.after(time.Hour))
	l.TunnelUp("a1")
	assert.Equal(t, []announce.Type{online, offline, online}, l.after(0))
}

func TestLiveness_AgentRestart(t *testing.T) {
	l := newLives(t)
	l.TunnelUp("a1")
	l.after(0)
	for range 3 {
		l.TunnelDown("a1")
		l.after(3 * time.Second)
		l.TunnelUp("a1")
		assert.Equal(t, []announce.Type{online}, l.after(3*time.Second))
	}
}

func TestLiveness_MissedHeartbeats(t *testing.T) {
	l := newLives(t)
	l.TunnelUp("a1")
	assert.Equal(t, []announce.Type{online}, l.after(90*time.Second))
	assert.Equal(t, []announce.Type{online, offline}, l.after(time.Second))
	l.Beat("a1", l.at, nil)
	assert.Equal(t, []announce.Type{online, offline, online}, l.after(0))
}

func TestLiveness_ControlPlaneRestart(t *testing.T) {
	l := newLives(t, announce.StateOnline)
	assert.Empty(t, l.after(44*time.Second))
	l.TunnelUp("a1")
	assert.Empty(t, l.after(2*time.Second))

	l = newLives(t, announce.StateOnline)
	assert.Equal(t, []announce.Type{offline}, l.after(45*time.Second), "but whoever does not come back is offline")
}

func TestLiveness_IgnoresRevoked(t *testing.T) {
	l := newLives(t)
	a, err := l.store.Agent(t.Context(), "a1")
	require.NoError(t, err)
	a.RevokedAt = l.at
	require.NoError(t, l.store.UpdateAgent(t.Context(), a))
	l.TunnelUp("a1")
	l.TunnelUp("stranger")
	assert.Empty(t, l.after(0))
	assert.Empty(t, l.agents, "and takes no memory")
}

func TestLiveness_AnnouncesCurrentAgent(t *testing.T) {
	l := newLives(t)
	l.Beat("a1", l.at.Add(time.Second), &announce.Capacity{Nodes: 7})
	l.TunnelUp("a1")
	l.after(0)
	queued, err := l.store.Outbox(t.Context(), 1)
	require.NoError(t, err)
	agent, err := queued[0].Event.Agent()
	require.NoError(t, err)
	assert.Equal(t, 7, agent.Capacity.Nodes)
	assert.Equal(t, announce.StateOnline, agent.State)
	assert.Equal(t, "a1.agents", agent.Endpoints[0].ServerName)
}

func TestLiveness_BatchesTransactions(t *testing.T) {
	l := newLives(t)
	const many = 2*transitBatch + 1
	for i := range many {
		id := fmt.Sprintf("many%d", i)
		require.NoError(t, l.store.InsertAgent(t.Context(), store.Agent{
			ID: id, Name: id, ClusterUID: id, State: announce.StatePending, EdgeAddress: "edge:1", RegisteredAt: l.at, LastSeen: l.at,
		}))
		l.TunnelUp(id)
	}
	l.TunnelUp("stranger") // who keeps none of them
	l.look(t.Context())
	queued, err := l.store.Outbox(t.Context(), 2*many)
	require.NoError(t, err)
	told := map[string]int{}
	for _, q := range queued {
		assert.Equal(t, online, q.Event.Type)
		told[q.Event.AgentID]++
	}
	assert.Len(t, told, many)
	assert.Len(t, queued, many, "each once")
	assert.NotContains(t, l.agents, "stranger")
}

var databases postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop).Run()) }

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
		l := New(s, discovery.Directory{AgentsDomain: "agents"}, Config{Log: zerolog.Nop(), Now: time.Now, HeartbeatInterval: time.Hour})
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
