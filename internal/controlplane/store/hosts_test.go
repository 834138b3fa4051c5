package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestHostClaims(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
		require.NoError(t, s.InsertAgent(ctx, agent("a2", "bakery")))
		put := func(claims ...store.HostClaim) {
			require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
				for _, c := range claims {
					if err := tx.PutClaim(ctx, c); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.PutRoutes(ctx, "a1", nil, store.RouteSet{At: noon}) }))
		mine := store.HostClaim{AgentID: "a1", Host: "b.example.com", ClaimedAt: noon, NextAt: noon.Add(time.Hour), Reason: "no record"}
		theirs := store.HostClaim{AgentID: "a2", Host: "b.example.com", Proof: "txt", ClaimedAt: noon.Add(time.Second), ProvenAt: noon, CheckedAt: noon, LostAt: noon}
		other := store.HostClaim{AgentID: "a2", Host: "c.example.com", ClaimedAt: noon, NextAt: noon.Add(time.Minute)}
		put(mine, theirs, other)
		mine.Proof, mine.ProvenAt, mine.Reason = "cname", noon.Add(time.Minute), ""
		put(mine)

		set, err := s.RouteSet(ctx, "a1")
		require.NoError(t, err)
		assert.EqualValues(t, 3, set.Revision, "a claim changes the revision of its agent")
		for what, list := range map[string]struct {
			got  func() ([]store.HostClaim, error)
			want []store.HostClaim
		}{
			"of an agent": {func() ([]store.HostClaim, error) { return s.ClaimsOf(ctx, "a1") }, []store.HostClaim{mine}},
			"to a host":   {func() ([]store.HostClaim, error) { return s.ClaimsTo(ctx, "b.example.com") }, []store.HostClaim{mine, theirs}},
			"all":         {func() ([]store.HostClaim, error) { return s.Claims(ctx) }, []store.HostClaim{mine, theirs, other}},
			"beside":      {func() ([]store.HostClaim, error) { return s.ClaimsBeside(ctx, "a1") }, []store.HostClaim{mine, theirs}},
			"due":         {func() ([]store.HostClaim, error) { return s.DueClaims(ctx, noon.Add(time.Minute), 10, 2) }, []store.HostClaim{theirs, other}},
			"its share":   {func() ([]store.HostClaim, error) { return s.DueClaims(ctx, noon.Add(time.Minute), 10, 1) }, []store.HostClaim{theirs}},
		} {
			got, err := list.got()
			require.NoError(t, err, what)
			assert.Equal(t, list.want, got, what)
		}

		var had bool
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
			return tx.PutGrant(ctx, store.HostGrant{Host: "b.example.com", AgentID: "a1", GrantedAt: noon})
		}))
		due, err := s.DueClaims(ctx, noon, 10, 10)
		require.NoError(t, err)
		assert.Len(t, due, 2, "a grant has all claims to its host looked at")
		granted, err := s.GrantOf(ctx, "b.example.com")
		require.NoError(t, err)
		assert.Equal(t, "a1", granted)
		grants, err := s.HostGrants(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.HostGrant{{Host: "b.example.com", AgentID: "a1", GrantedAt: noon}}, grants)
		for _, want := range []bool{true, false} {
			require.NoError(t, s.Update(ctx, func(tx *store.Tx) (err error) {
				had, err = tx.DeleteGrant(ctx, "b.example.com")
				return err
			}))
			assert.Equal(t, want, had)
		}
		granted, err = s.GrantOf(ctx, "b.example.com")
		require.NoError(t, err)
		assert.Empty(t, granted)

		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.DeleteClaim(ctx, "a2", "c.example.com") }))
		revoked := agent("a2", "bakery")
		revoked.RevokedAt = noon
		require.NoError(t, s.UpdateAgent(ctx, revoked))
		all, err := s.Claims(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1, "a revoked agent's do not count")
		require.NoError(t, s.DeleteAgent(ctx, "a1"))
		all, err = s.ClaimsOf(ctx, "a1")
		require.NoError(t, err)
		assert.Empty(t, all)
		names, err := s.AgentNames(ctx)
		require.NoError(t, err)
		assert.Empty(t, names)
	})
}

func TestGatewayFiles(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for _, name := range []string{"certificates/x/x.crt", "certificates/x/x.key", "certificates/xy/a", "acme/account"} {
			require.NoError(t, s.PutGatewayFile(ctx, store.GatewayFile{Name: name, Sealed: "old", Size: 3, ModifiedAt: noon}))
		}
		f := store.GatewayFile{Name: "certificates/x/x.crt", Sealed: "new", Size: 4, ModifiedAt: noon.Add(time.Second)}
		require.NoError(t, s.PutGatewayFile(ctx, f))
		got, err := s.GatewayFile(ctx, f.Name)
		require.NoError(t, err)
		assert.Equal(t, f, got)
		names, err := s.GatewayFiles(ctx, "certificates/x/")
		require.NoError(t, err)
		assert.Equal(t, []string{"certificates/x/x.crt", "certificates/x/x.key"}, names)
		require.NoError(t, s.DeleteGatewayFiles(ctx, "certificates/x"))
		names, err = s.GatewayFiles(ctx, "")
		require.NoError(t, err)
		assert.Equal(t, []string{"acme/account", "certificates/xy/a"}, names)
		_, err = s.GatewayFile(ctx, f.Name)
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

func TestGatewayLocks(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		lock := func(holder string, lease time.Duration) bool {
			has, err := s.LockGateway(ctx, "l", holder, lease)
			require.NoError(t, err)
			return has
		}
		assert.True(t, lock("one", time.Hour))
		assert.False(t, lock("two", time.Hour))
		assert.True(t, lock("one", time.Hour), "it is renewed")
		require.NoError(t, s.UnlockGateway(ctx, "l", "two"))
		assert.False(t, lock("two", time.Hour), "only the holder gives it back")
		require.NoError(t, s.UnlockGateway(ctx, "l", "one"))
		assert.True(t, lock("two", 0))
		assert.True(t, lock("one", time.Hour), "a lease that has ended is free")
	})
}

func TestRoutes_Replaced(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
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
	})
}

func TestHostModes(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
		route := store.Route{Host: "www.example.com", Path: "/", PathType: "Prefix", TLS: true, Namespace: "n", Service: "web", Port: 80, Endpoint: "93.184.216.34", Since: noon}
		other := route
		other.Path, other.Endpoint = "/x", "93.184.216.35"
		put := func(routes ...store.Route) {
			t.Helper()
			require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.PutRoutes(ctx, "a1", routes, store.RouteSet{At: noon}) }))
		}
		mode := func() store.HostMode {
			t.Helper()
			claims, err := s.ClaimsOf(ctx, "a1")
			require.NoError(t, err)
			require.Len(t, claims, 1)
			return store.HostMode{AgentID: "a1", Host: claims[0].Host, Mode: claims[0].Mode, Reason: claims[0].ModeReason}
		}
		endpoints := func() map[string]string {
			t.Helper()
			found, err := s.EndpointsOf(ctx, "a1")
			require.NoError(t, err)
			return found
		}
		claim := func() {
			require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
				return tx.PutClaim(ctx, store.HostClaim{AgentID: "a1", Host: route.Host, Proof: "cname", ClaimedAt: noon})
			}))
		}
		put(route)
		claim()
		assert.Equal(t, map[string]string{route.Host: route.Endpoint}, endpoints())
		direct := store.HostMode{AgentID: "a1", Host: route.Host, Mode: "direct", Reason: "none"}
		require.NoError(t, s.PutHostModes(ctx, []store.HostMode{direct}))
		claim()
		put(route, other)
		assert.Equal(t, direct, mode())
		assert.Empty(t, endpoints(), "its routes do not agree")
		route.Endpoint = ""
		put(route)
		assert.Empty(t, mode().Mode)
		require.NoError(t, s.PutHostModes(ctx, []store.HostMode{direct}))
		require.NoError(t, s.ForgetHostModes(ctx))
		assert.Empty(t, mode().Mode)
	})
}

// A host whose connections keep their TLS leads to one port, and to nothing else.
func TestPassedOf(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
		route := func(host, app, protocol string, port int32) store.Route {
			return store.Route{AgentID: "a1", Host: host, Path: "/", PathType: "Prefix", Namespace: "shop", App: app, Service: app, Port: port, Protocol: protocol, Since: noon}
		}
		require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
			return tx.PutRoutes(ctx, "a1", []store.Route{
				route("db.example.com", "db", "TLS", 5432), route("db.example.com", "db", "TCP", 22), route("db.example.com", "late", "", 0),
				route("www.example.com", "web", "", 80),
				route("both.example.com", "web", "", 443), route("both.example.com", "db", "TLS", 443),
				route("two.example.com", "db", "TLS", 443), route("two.example.com", "web", "TLS", 444),
				route("none.example.com", "db", "TLS", 0),
			}, store.RouteSet{At: noon})
		}))
		passed, err := s.PassedOf(ctx, "a1")
		require.NoError(t, err)
		assert.Equal(t, map[string]int32{"db.example.com": 5432}, passed)
		none, err := s.PassedOf(ctx, "a2")
		require.NoError(t, err)
		assert.Empty(t, none)
	})
}
