package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func TestRoutes_Replaced(t *testing.T) {
	postgres.OnEach(t, testRoutesAreReplacedAndGoWithTheirAgent)
}

func testRoutesAreReplacedAndGoWithTheirAgent(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
	require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
	require.NoError(t, s.InsertAgent(ctx, agent("a2", "bakery")))
	put := func(agentID string, set store.RouteSet, routes ...store.Route) {
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.PutRoutes(ctx, agentID, routes, set) }))
	}
	b := store.Route{AgentID: "a1", Host: "b.example.com", Path: "/", PathType: "Prefix", TLS: true, Endpoint: "93.184.216.34", Namespace: "n", App: "web", Service: "web", Port: 80, Since: noon}
	a := store.Route{AgentID: "a1", Host: "a.example.com", Path: "/x", PathType: "Exact", Namespace: "n", App: "web", Service: "web", Port: 80, Ready: true, Since: noon}
	other := store.Route{AgentID: "a2", Host: "b.example.com", Path: "/", PathType: "Prefix", Namespace: "n", App: "web", Service: "web", Port: 80, Reason: "no pod", Since: noon}

	set, err := s.RouteSet(ctx, "a1")
	require.NoError(t, err)
	assert.Equal(t, store.RouteSet{}, set, "nothing was told yet")
	put("a1", store.RouteSet{Digest: "d1", At: noon}, b, a)
	put("a1", store.RouteSet{Digest: "d2", Omitted: 3, At: noon.Add(time.Second)}, b, a)
	put("a2", store.RouteSet{Digest: "d3", At: noon}, other)

	set, err = s.RouteSet(ctx, "a1")
	require.NoError(t, err)
	assert.Equal(t, store.RouteSet{Digest: "d2", Omitted: 3, At: noon.Add(time.Second), Revision: 2}, set)
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.HeardRoutes(ctx, "a2", noon.Add(time.Minute)) }))
	sets, err := s.RouteSets(ctx)
	require.NoError(t, err)
	assert.Equal(t, map[string]store.RouteSet{"a1": set, "a2": {Digest: "d3", At: noon.Add(time.Minute), Revision: 1}}, sets)
	hosts, err := s.HostsOf(ctx, "a1", 10)
	require.NoError(t, err)
	assert.Equal(t, []string{"a.example.com", "b.example.com"}, hosts)
	routes, err := s.RoutesOf(ctx, "a1")
	require.NoError(t, err)
	assert.Equal(t, []store.Route{b, a}, routes, "in the agent's order")

	gone := agent("a2", "bakery")
	gone.RevokedAt = noon
	require.NoError(t, s.UpdateAgent(ctx, gone))
	routes, err = s.Routes(ctx)
	require.NoError(t, err)
	assert.Equal(t, []store.Route{b, a}, routes, "a revoked agent's do not count")

	require.NoError(t, s.DeleteAgent(ctx, "a1"))
	require.NoError(t, s.DeleteAgent(ctx, "a2"))
	for _, id := range []string{"a1", "a2"} {
		routes, err = s.RoutesOf(ctx, id)
		require.NoError(t, err)
		assert.Empty(t, routes)
		set, err = s.RouteSet(ctx, id)
		require.NoError(t, err)
		assert.Empty(t, set.Digest)
	}
	require.Error(t, s.Update(ctx, func(tx *store.Tx) error { return tx.PutRoutes(ctx, "a1", []store.Route{a}, store.RouteSet{}) }),
		"there is no such agent")
}
