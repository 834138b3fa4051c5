package controlplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// refreshed returns a table of what is stored now.
func refreshed(t *testing.T, p *plane) *gateway.Table {
	t.Helper()
	table := gateway.NewTable(p.store, p.clock.now)
	require.NoError(t, table.Refresh(t.Context()))
	return table
}

// prove changes what proves an agent's claim; an empty proof takes it away.
func prove(t *testing.T, p *plane, agentID, host, proof, reason string) {
	t.Helper()
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		claims, err := tx.ClaimsTo(t.Context(), host)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(claims, func(c store.HostClaim) bool { return c.AgentID == agentID })
		claim := claims[i]
		claim.Proof, claim.Reason, claim.ProvenAt = proof, reason, p.clock.now()
		return tx.PutClaim(t.Context(), claim)
	}))
}

// TestRouteEvents: each host that the gateway begins or ceases to serve is announced once, though
// the process that leads is another one.
func TestRouteEvents(t *testing.T) {
	p := start(t)
	shop, bank := p.registered("shop"), p.registered("bank")
	const host = "www.example.org"
	tell(shop, routeTo(host, "/", "web"))
	tell(bank, routeTo(host, "/", "web"))
	var announced map[string]string
	news := func() (said []string) {
		t.Helper()
		before := len(p.queued())
		n := routes.NewEvents(p.store, refreshed(t, p), p.clock.now, zerolog.Nop())
		require.NoError(t, n.Compare(t.Context(), &announced))
		for _, e := range p.queued()[before:] {
			route, err := e.Route()
			require.NoError(t, err)
			assert.Equal(t, host, route.Host)
			assert.Equal(t, "n/web", route.Namespace+"/"+route.App)
			name := map[string]string{shop.id.AgentID: "shop", bank.id.AgentID: "bank"}[e.AgentID]
			said = append(said, strings.TrimSpace(name+" "+string(e.Type)+" "+route.Reason))
		}
		return said
	}
	assert.Empty(t, news(), "nobody has proven it")
	prove(t, p, shop.id.AgentID, host, hosts.TXT, "")
	assert.Equal(t, []string{"shop " + string(announce.RouteServing)}, news())
	assert.Empty(t, news())
	announced = nil // another process leads
	assert.Empty(t, news(), "the database has what was said")
	prove(t, p, bank.id.AgentID, host, hosts.CNAME, "")
	assert.Equal(t, []string{"shop route.suspended another agent has a better proof of the host", "bank route.serving"}, news())
	prove(t, p, bank.id.AgentID, host, "", "the record is gone")
	assert.Equal(t, []string{"bank route.suspended the record is gone", "shop route.serving"}, news())
	refused := controlapi.Route{Host: host, Path: "/", PathType: "Prefix", Namespace: "n", App: "web", Reason: "HTTPRoute web is not served"}
	tell(shop, refused)
	assert.Equal(t, []string{"shop route.suspended HTTPRoute web is not served"}, news(), "it can no longer be carried")
	tell(shop, routeTo(host, "/", "web"))
	prove(t, p, shop.id.AgentID, host, hosts.TXT, "")
	assert.Equal(t, []string{"shop route.serving"}, news())
	p.clock.forward(gateway.RoutesTTL + time.Hour)
	assert.Equal(t, []string{"shop route.suspended the agent was not heard with this route for long"}, news())
}
