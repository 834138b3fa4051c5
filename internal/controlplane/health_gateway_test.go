package controlplane

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
)

func TestGatewayHealth_Domain(t *testing.T) {
	dns := dnstest.Start(t)
	resolver := &hosts.Resolver{Servers: []string{dns.Address}}
	f := domainHealth(t.Context(), resolver, "apps.example.com")
	assert.False(t, f.ok)
	assert.Contains(t, f.text, "*.apps.example.com is not in DNS")
	dns.Set(t, "gateway-check.apps.example.com", "A 192.0.2.1")
	assert.Equal(t, &finding{true, "*.apps.example.com leads to 192.0.2.1"}, domainHealth(t.Context(), resolver, "apps.example.com"))
	f = domainHealth(t.Context(), &hosts.Resolver{}, "apps.example.com")
	assert.False(t, f.ok)
	assert.Contains(t, f.text, "could not be asked")
}

func TestGatewayHealth_Hosts(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	tell(shop, routeTo("a.example.org", "/", "web"), routeTo("b.example.org", "/", "web"))
	prove(t, p, shop.id.AgentID, "a.example.org", hosts.TXT, "")
	f, named, unproven, err := proofHealth(t.Context(), p.store, p.clock.now())
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{named, unproven})
	assert.True(t, f.ok, "its owner has to act")
	assert.Contains(t, f.text, "1 of 2 hosts are not proven: b.example.org")
	reason := "the CA refuses"
	certificate := func(context.Context, string) (string, string) { return "", reason }
	table := refreshed(t, p)
	f, missing := certificateHealth(t.Context(), table, certificate)
	assert.Equal(t, &finding{false, "1 of 1 hosts have none: a.example.org: the CA refuses"}, f)
	assert.Equal(t, 1, missing)
	reason = ""
	f, missing = certificateHealth(t.Context(), table, certificate)
	assert.True(t, f.ok && missing == 0)
}

// TestReadiness_Gateway: the gateway is a check of readiness, and not a vital one.
func TestReadiness_Gateway(t *testing.T) {
	dns := dnstest.Start(t)
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{
			Domain: "apps.example.com", CA: GatewayInternal, HTTPSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Resolvers: []string{dns.Address},
		}
	})
	r := p.readyWhen("looked at", func(r readiness) bool { return r.Ready && r.Checks["gateway-proofs"] != "" })
	assert.True(t, r.Degraded)
	assert.Contains(t, r.Checks["gateway"], "ok: 0 hosts")
	assert.Contains(t, r.Checks["gateway-domain"], "failed: *.apps.example.com is not in DNS")
	assert.Contains(t, r.Checks["gateway-certificates"], "ok: ")
	shop := p.registered("shop")
	tell(shop, routeTo("web-n-shop.apps.example.com", "/", "web"))
	p.readyWhen("serving it", func(r readiness) bool { return r.Checks["gateway"] == "ok: 1 hosts are served" })
	state, err := shop.client.Routes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "shop", state.Agent)
	require.Len(t, state.Hosts, 1)
	assert.Contains(t, []string{"ready", "pending"}, state.Hosts[0].Certificate)
}

// TestRoutes_MissingCertificate: the reason comes from the database, so that each control plane has
// it.
func TestRoutes_MissingCertificate(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{Domain: "apps.example.com", CA: "https://ca.invalid/directory", HTTPSListen: "127.0.0.1:0"}
	})
	shop := p.registered("shop")
	const host = "www.example.org"
	_, err := p.admin.Gateway.Grant(t.Context(), host, "shop") // a proof for which DNS is not asked
	require.NoError(t, err)
	tell(shop, routeTo(host, "/", "web"))
	failed := store.CertificateFailure{Host: host, Failures: 1, Reason: "the CA refuses", NextAt: time.Now().Add(time.Hour)}
	want := "the gateway has no new certificate for the host, and tries again: the CA refuses"
	await.Until(t, "the agent and the operator see why", func() bool {
		// A keeper that has not heard of the host yet forgets its failures, once.
		require.NoError(t, p.store.PutCertificateFailure(t.Context(), failed))
		state, err := shop.client.Routes(t.Context())
		list := p.routes("shop")
		return err == nil && len(state.Hosts) == 1 && state.Hosts[0].Certificate == "failed" && state.Hosts[0].Reason == want &&
			len(list) == 1 && list[0].Reason == want
	})
}
