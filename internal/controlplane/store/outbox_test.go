package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// long is an outbox of an agent with an App, as it grows while there is no broker.
func long(t *testing.T, s *store.Store, id string, rounds int) {
	t.Helper()
	a := agent(id, "shop-"+id)
	require.NoError(t, s.InsertAgent(t.Context(), a))
	enqueue(t, s, a, announce.AgentRegistered)
	for i := range rounds {
		enqueue(t, s, a, []announce.Type{announce.AgentOnline, announce.AgentOffline}[i%2])
		enqueue(t, s, a, announce.AppProgressing)
		enqueue(t, s, a, announce.AppHealthy)
	}
	enqueue(t, s, a, announce.AgentCloned)
}

// waiting lists what waits as TYPE SEQUENCE, by agent.
func waiting(t *testing.T, s *store.Store) map[string][]string {
	t.Helper()
	queued, err := s.Outbox(t.Context(), 10_000)
	require.NoError(t, err)
	list := map[string][]string{}
	for _, q := range queued {
		list[q.Event.AgentID] = append(list[q.Event.AgentID], fmt.Sprintf("%s %d", q.Event.Type, q.Event.Sequence))
	}
	return list
}

func TestOutbox_LimitPerAgent(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		long(t, s, "loud", 20)
		long(t, s, "quiet", 1)
		limits := store.OutboxLimits{PerAgent: 12, Events: 1000, Bytes: 1 << 30}
		dropped, over, err := s.Shorten(t.Context(), limits)
		require.NoError(t, err)
		assert.True(t, over)
		left := waiting(t, s)
		assert.EqualValues(t, 62-len(left["loud"]), dropped)
		assert.Equal(t, []string{"agent.registered 1", "app.progressing 54", "app.healthy 55", "agent.online 56", "app.progressing 57", "app.healthy 58", "agent.offline 59",
			"app.progressing 60", "app.healthy 61", "agent.cloned 62"}, left["loud"], "three quarters of the limit stay, and what nothing supersedes")
		assert.Len(t, left["quiet"], 5, "others' is untouched")
		dropped, over, err = s.Shorten(t.Context(), limits)
		require.NoError(t, err)
		assert.False(t, over)
		assert.Zero(t, dropped)
	})
}

func TestOutbox_KeepsLastEvents(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		t.Parallel()
		for what, limits := range map[string]store.OutboxLimits{
			"events": {PerAgent: 1000, Events: 10, Bytes: 1 << 30},
			"bytes":  {PerAgent: 1000, Events: 1000, Bytes: 2000},
		} {
			t.Run(what, func(t *testing.T) {
				s := fresh(t, on)
				long(t, s, "a", 10)
				long(t, s, "b", 10)
				long(t, s, "c", 10)
				_, over, err := s.Shorten(t.Context(), limits)
				require.NoError(t, err)
				assert.True(t, over)
				last := []string{"agent.registered 1", "agent.offline 29", "app.healthy 31", "agent.cloned 32"}
				left := waiting(t, s)
				assert.Equal(t, last, left["a"])
				assert.Subset(t, left["c"], last)
				state, err := s.OutboxState(t.Context())
				require.NoError(t, err)
				assert.Less(t, state.Length, 4*3+10)
				assert.Equal(t, noon, state.Oldest)
				dropped, over, err := s.Shorten(t.Context(), limits)
				require.NoError(t, err)
				assert.True(t, over, "said, for nobody else says it")
				assert.Zero(t, dropped)
			})
		}
	})
}

func TestOutbox_Size(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		state, err := s.OutboxState(t.Context())
		require.NoError(t, err)
		assert.Equal(t, store.OutboxState{}, state)
		long(t, s, "a", 3)
		events, err := s.Waiting(t.Context(), 0, 100)
		require.NoError(t, err)
		var size int
		for _, w := range events {
			size += len(w.Event.Body)
			assert.WithinDuration(t, noon, w.Event.Time, time.Hour)
		}
		state, err = s.OutboxState(t.Context())
		require.NoError(t, err)
		assert.Equal(t, store.OutboxState{Length: len(events), Bytes: int64(size), Oldest: noon}, state)
		rest, err := s.Waiting(t.Context(), events[3].ID, 2)
		require.NoError(t, err)
		assert.Equal(t, events[4:6], rest)
	})
}
