package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func peer(id string) store.Peer {
	return store.Peer{ID: id, Version: "v1", Peer: id + ":8445", Tunnel: id + ":7000", Edge: "edge:8444", StartedAt: noon}
}

func TestPeer_Lease(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.JoinPeer(ctx, peer("b"), time.Minute))
		require.NoError(t, s.JoinPeer(ctx, peer("a"), time.Minute))
		live, err := s.Peers(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.Peer{peer("a"), peer("b")}, live)

		there, err := s.RenewPeer(ctx, "a", 0)
		require.NoError(t, err)
		assert.True(t, there)
		live, err = s.Peers(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.Peer{peer("b")}, live, "a lease of nothing has ended")

		n, err := s.RemovePeers(ctx, time.Hour)
		require.NoError(t, err)
		assert.Zero(t, n, "it is remembered for a while")
		await.Until(t, "the peer is removed", func() bool {
			n, err = s.RemovePeers(ctx, 0)
			require.NoError(t, err)
			return n > 0
		})
		there, err = s.RenewPeer(ctx, "a", time.Minute)
		require.NoError(t, err)
		assert.False(t, there, "a removed peer has to join again")
	})
}

func TestPeer_Tunnels(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for _, id := range []string{"n1", "n2", "n3"} {
			require.NoError(t, s.JoinPeer(ctx, peer(id), time.Minute))
		}
		many := map[string]time.Time{}
		for i := range 1234 { // several statements
			many[fmt.Sprintf("agent%d", i)] = noon
		}
		require.NoError(t, s.SetTunnels(ctx, "n1", many))
		require.NoError(t, s.SetTunnels(ctx, "n2", map[string]time.Time{"agent7": noon.Add(time.Second), "agent8": noon}))
		require.NoError(t, s.SetTunnels(ctx, "n3", map[string]time.Time{"agent7": noon.Add(-time.Second)}))
		where := func(agent string) (ids []string) {
			list, err := s.PeersOf(ctx, agent)
			require.NoError(t, err)
			for _, n := range list {
				ids = append(ids, n.ID)
			}
			return ids
		}
		assert.Equal(t, []string{"n2", "n1", "n3"}, where("agent7"), "the newest tunnel first")
		assert.Equal(t, []string{"n1"}, where("agent1233"))
		for id := range many {
			many[id] = time.Time{}
		}
		require.NoError(t, s.SetTunnels(ctx, "n1", many))
		assert.Equal(t, []string{"n2"}, where("agent8"))
		assert.Empty(t, where("agent1233"))
		_, err := s.RenewPeer(ctx, "n2", 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"n3"}, where("agent7"), "a peer's tunnels go with it")
		require.Error(t, s.SetTunnels(ctx, "stranger", map[string]time.Time{"agent7": noon}))
	})
}

func TestMisplaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.JoinPeer(ctx, peer("live"), time.Minute))
		require.NoError(t, s.JoinPeer(ctx, peer("dead"), 0))
		tunnels := map[string]map[string]time.Time{"live": {}, "dead": {}}
		add := func(id string, state announce.State, seen time.Time, at string, since time.Time) {
			a := agent(id, id)
			a.State, a.LastSeen = state, seen
			require.NoError(t, s.InsertAgent(ctx, a))
			if at != "" {
				tunnels[at][id] = since
			}
		}
		limit, before, after := noon, noon.Add(-time.Minute), noon.Add(time.Minute)
		add("fine", announce.StateOnline, after, "live", before)
		add("connected", announce.StateOnline, before, "live", after)
		add("silent", announce.StateOnline, before, "live", before)
		add("cut", announce.StateOnline, after, "", time.Time{})
		add("orphan", announce.StateOnline, after, "dead", after)
		add("new", announce.StatePending, before, "live", after)
		add("never", announce.StatePending, after, "", time.Time{})
		add("back", announce.StateOffline, after, "live", before)
		add("away", announce.StateOffline, before, "live", before)
		add("gone", announce.StateOffline, before, "dead", before)
		for id, since := range tunnels {
			require.NoError(t, s.SetTunnels(ctx, id, since))
		}
		got, err := s.Misplaced(ctx, limit)
		require.NoError(t, err)
		assert.ElementsMatch(t, []store.Misplaced{
			{AgentID: "silent", Tunnel: true, Silent: true}, {AgentID: "cut"}, {AgentID: "orphan", Orphaned: true},
			{AgentID: "new", Tunnel: true}, {AgentID: "back", Tunnel: true},
		}, got)
	})
}

func TestAuthority_ReplaceNextVersion(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		_, err := s.Authority(ctx)
		require.ErrorIs(t, err, store.ErrNotFound)
		first, second := store.Sealed{Version: 1, Text: "1"}, store.Sealed{Version: 2, Text: "2"}
		require.NoError(t, s.MakeAuthority(ctx, first))
		require.NoError(t, s.MakeAuthority(ctx, second), "the first wins")
		got, err := s.Authority(ctx)
		require.NoError(t, err)
		assert.Equal(t, first, got)
		require.NoError(t, s.ReplaceAuthority(ctx, second))
		require.ErrorIs(t, s.ReplaceAuthority(ctx, second), store.ErrNotFound, "another was faster")
	})
}

func TestLead_OneAtATime(t *testing.T) {
	t.Parallel()
	d := hosted(t)
	var leading atomic.Int32
	lead := func(s *store.Store) (led chan struct{}, stop func()) {
		led = make(chan struct{}, 10)
		return led, await.Background(t, "Lead", func(ctx context.Context) error {
			return s.Lead(ctx, func(ctx context.Context) {
				assert.EqualValues(t, 1, leading.Add(1), "one leads")
				led <- struct{}{}
				<-ctx.Done()
				leading.Add(-1)
			})
		})
	}
	first, stopFirst := lead(openHosted(t, d))
	await.Receive(t, first, "the first leader")
	second, stopSecond := lead(openHosted(t, d))
	assert.Empty(t, second)
	stopFirst()
	await.Receive(t, second, "the second leader")
	stopSecond()
	assert.Zero(t, leading.Load())
}

func TestServe_Beside(t *testing.T) {
	t.Parallel()
	d, ctx := hosted(t), t.Context()
	first, second := openHosted(t, d), openHosted(t, d)
	require.NoError(t, first.ServeBeside(ctx))
	require.NoError(t, second.ServeBeside(ctx))
	require.ErrorIs(t, openHosted(t, d).Serve(ctx), store.ErrServed)
}
