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

func routeTo(host, path, app string) controlapi.Route {
	return controlapi.Route{Host: host, Path: path, PathType: "Prefix", Namespace: "n", App: app, Service: app, Port: 80, Ready: true}
}

// tell sends an agent's routes, and answers what Runners would hear of it.
func tell(c *cluster, routes ...controlapi.Route) []announce.Event {
	c.t.Helper()
	before := len(c.p.queued())
	req := controlapi.RoutesRequest{Routes: routes}
	state, err := c.client.PutRoutes(c.t.Context(), req)
	require.NoError(c.t, err)
	assert.Equal(c.t, req.Digest(), state.Digest)
	return c.p.queued()[before:]
}

func (p *plane) routes(agent string) []routes.Route {
	p.t.Helper()
	list, err := p.admin.Gateway.Routes(p.t.Context(), agent)
	require.NoError(p.t, err)
	return list.Items
}

// TestRoutes_RedirectAlone: a host whose only route redirects is claimed like any other.
func TestRoutes_RedirectAlone(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{Domain: "apps.example.com", CA: GatewayInternal, HTTPSListen: "127.0.0.1:0"}
	})
	shop := p.registered("shop")
	redirect := routeTo("www.example.com", "/", "")
	redirect.Service, redirect.Port = "", 0
	closed := routeTo("closed.example.com", "/", "")
	closed.Service, closed.Port, closed.Ready, closed.Reason = "", 0, false, "its Service is in another namespace"
	state, err := shop.client.PutRoutes(t.Context(), controlapi.RoutesRequest{Routes: []controlapi.Route{redirect, closed}})
	require.NoError(t, err)
	require.Len(t, state.Hosts, 1)
	assert.Equal(t, "www.example.com", state.Hosts[0].Host)
}

func TestRoutes_ListedAndAnnounced(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	state, err := shop.client.Routes(t.Context())
	require.NoError(t, err)
	assert.Empty(t, state.Digest, "nothing is known")

	web, api := routeTo("b.example.com", "/", "web"), routeTo("a.example.com", "/v1", "api")
	api.TLS = true
	news := tell(shop, web, api)
	require.Equal(t, []announce.Type{announce.AgentUpdated}, typesOf(news))
	announced, err := news[0].Agent()
	require.NoError(t, err)
	assert.Equal(t, []string{"a.example.com", "b.example.com"}, announced.Hosts)
	require.NoError(t, announced.Validate())
	shown, err := p.admin.Agents.Get(t.Context(), "shop", 0)
	require.NoError(t, err)
	assert.Equal(t, announced.Hosts, shown.Agent.Hosts)

	web.Ready, web.Reason = false, "no pod is ready"
	assert.Empty(t, tell(shop, web, api), "the hosts are the same")
	list := p.routes("shop")
	require.Len(t, list, 2)
	assert.Equal(t, "https://a.example.com/v1", list[0].URL)
	assert.Equal(t, "https://b.example.com/", list[1].URL)
	assert.False(t, list[1].Served, "nothing proves the host")
	assert.Equal(t, "shop", list[1].Agent.Name)
	assert.Nil(t, list[1].HeldBy)

	agents, err := p.snapshotClient(p.issue("ci", "")).Agents(t.Context())
	require.NoError(t, err)
	require.Len(t, agents, 1)
	assert.Equal(t, announced.Hosts, agents[0].Hosts, "a Runner starts with what it would have heard")
	assert.Equal(t, []announce.Type{announce.AgentUpdated}, typesOf(tell(shop)), "they are gone")
	assert.Empty(t, p.routes(""))
}

// TestRoutes_ProofDecides: the agent that proves a host has it, whichever claimed it first.
func TestRoutes_ProofDecides(t *testing.T) {
	p := start(t)
	first, second := p.registered("first"), p.registered("second")
	route := routeTo("www.example.com", "/", "web")
	tell(first, route)
	p.clock.forward(time.Second)
	tell(second, route, routeTo("www.example.com", "/other", "web"))
	for _, r := range p.routes("") {
		assert.False(t, r.Served, "none has proven it")
		assert.Nil(t, r.HeldBy)
	}
	prove(t, p, second.id.AgentID, "www.example.com", hosts.CNAME, "")
	byAgent := map[string][]routes.Route{}
	for _, r := range p.routes("") {
		byAgent[r.Agent.Name] = append(byAgent[r.Agent.Name], r)
	}
	require.Len(t, byAgent["second"], 2)
	for _, r := range byAgent["second"] {
		assert.True(t, r.Served)
		assert.Equal(t, hosts.CNAME, r.Proof)
		assert.Nil(t, r.HeldBy)
	}
	require.Len(t, byAgent["first"], 1)
	require.NotNil(t, byAgent["first"][0].HeldBy)
	assert.Equal(t, routes.Claimant{ID: second.id.AgentID, Name: "second", State: announce.StatePending}, *byAgent["first"][0].HeldBy)
	assert.NotNil(t, p.routes("first")[0].HeldBy, "also in the list of one agent")

	_, err := p.admin.Gateway.Grant(t.Context(), "www.example.com", "first")
	require.NoError(t, err)
	prove(t, p, first.id.AgentID, "www.example.com", hosts.Grant, "")
	assert.True(t, p.routes("first")[0].Served, "the operator has the last word")
	_, err = p.admin.Agents.Revoke(t.Context(), "first")
	require.NoError(t, err)
	assert.True(t, p.routes("second")[0].Served, "a revoked agent holds nothing")
	assert.Len(t, p.routes(""), 2)
	_, err = p.admin.Agents.Remove(t.Context(), first.id.AgentID)
	require.NoError(t, err)
	requireProblem(t, putRoutes(first, route), controlapi.CodeAgentUnknown)
}

func putRoutes(c *cluster, routes ...controlapi.Route) error {
	_, err := c.client.PutRoutes(c.t.Context(), controlapi.RoutesRequest{Routes: routes})
	return err
}

func TestRoutes_TwoApps(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	tell(shop, routeTo("www.example.com", "/", "old"), routeTo("www.example.com", "/api", "api"))
	p.clock.forward(time.Second)
	tell(shop, routeTo("www.example.com", "/", "new"), routeTo("www.example.com", "/", "old"), routeTo("www.example.com", "/api", "api"))
	for _, r := range p.routes("shop") {
		if r.App != "new" {
			assert.Nil(t, r.HeldBy, r.App)
			continue
		}
		require.NotNil(t, r.HeldBy)
		assert.Equal(t, "old", r.HeldBy.App)
	}
}

// TestRoutes_Unserved: such a route has a reason, and makes no claim to its host.
func TestRoutes_Unserved(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	const host = "www.example.org"
	refused := controlapi.Route{Host: host, Path: "/", PathType: "Prefix", Namespace: "n", Reason: "HTTPRoute site is not served: it has filters"}
	tell(shop, refused)
	list := p.routes("shop")
	require.Len(t, list, 1)
	assert.Equal(t, refused.Reason, list[0].Reason)
	assert.False(t, list[0].Served)
	claims, err := p.store.Claims(t.Context())
	require.NoError(t, err)
	assert.Empty(t, claims, "a host that is not served needs no certificate")

	tell(shop, refused, routeTo(host, "/api", "api"))
	prove(t, p, shop.id.AgentID, host, hosts.TXT, "")
	list = p.routes("shop")
	require.Len(t, list, 2)
	assert.Equal(t, []bool{false, true}, []bool{list[0].Served, list[1].Served}, "another route of the host is served")
	assert.Equal(t, refused.Reason, list[0].Reason)
}

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
