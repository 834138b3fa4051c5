package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func TestHostModes(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		s, ctx := fresh(t, on), t.Context()
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
