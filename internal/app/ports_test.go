package app_test

import (
	"cmp"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPublicPorts_RoutesAndStatus: an App with public ports has a route for each, and its status
// follows what the gateway does.
func TestPublicPorts_RoutesAndStatus(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "base")
	const host = "base.apps.example.com"
	spec := web()
	spec.Ports = []runnerapi.Port{{Name: "pg", Port: 5432}, {Name: "ssh", Port: 22}, {Name: "dns", Port: 22, Service: 5432, Protocol: "UDP"}}
	spec.Ingress = &runnerapi.Ingress{
		Ports: []runnerapi.IngressPort{
			{Port: 5432, PublicPort: 5432, ProxyProtocol: true, IdleSeconds: 60}, {Port: 22, AllowFrom: []string{"192.0.2.0/24"}},
			{Port: 5432, Protocol: "UDP", PublicPort: 5432},
		},
		Visitors: &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24"}},
	}
	deploy(t, e, k, spec)
	rollOut(t, env, k)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(nil)))
	awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, "wait until the control plane knows the port")
	routes := routesOf(t, e)
	require.Len(t, routes, 3)
	slices.SortFunc(routes, func(a, b ingress.Route) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	ssh, pg, udp := routes[0], routes[1], routes[2]
	assert.Equal(t, gatewaywire.UDP, udp.Protocol)
	assert.Len(t, udp.Addresses, 1)
	assert.Equal(t, ingress.Route{Host: host, Protocol: gatewaywire.TCP, Port: 5432, PublicPort: 5432, Proxied: true, Idle: time.Minute},
		ingress.Route{Host: pg.Host, Protocol: pg.Protocol, Port: pg.Port, PublicPort: pg.PublicPort, Proxied: pg.Proxied, Idle: pg.Idle})
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, pg.Visitors.AllowFrom, "those of visitors")
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, ssh.Visitors.AllowFrom, "its own")
	assert.Len(t, pg.Addresses, 1)

	public := publicWith(nil)
	public.Ports = []ingress.PublicPort{{App: k, Protocol: gatewaywire.TCP, Port: 5432, PublicPort: 5432, Served: true}, {App: k, Protocol: gatewaywire.TCP, Port: 22, Reason: "no port of the gateway is free"}}
	require.NoError(t, e.SetPublic(t.Context(), public))
	assert.Equal(t, []string{"tcp://" + host + ":5432"}, awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, "no port of the gateway is free"))
	public.Ports = []ingress.PublicPort{{App: k, Protocol: gatewaywire.TCP, Port: 5432, PublicPort: 5432, Served: true}, {App: k, Protocol: gatewaywire.TCP, Port: 22, PublicPort: 20000, Served: true}}
	require.NoError(t, e.SetPublic(t.Context(), public))
	awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, "wait until the control plane knows the port")
	public.Ports = append(public.Ports, ingress.PublicPort{App: k, Protocol: gatewaywire.UDP, Port: 5432, PublicPort: 5432, Served: true})
	require.NoError(t, e.SetPublic(t.Context(), public))
	assert.Equal(t, []string{"tcp://" + host + ":5432", "tcp://" + host + ":20000", "udp://" + host + ":5432"}, awaitIngress(t, e, k, runnerapi.ReasonServed, ""))

	spec.Ingress.Visitors = &runnerapi.Visitors{BasicAuthSecret: "users"}
	deploy(t, e, k, spec)
	eventually(t, "a port asks for no password, so it is closed", func() bool {
		for _, r := range routesOf(t, e) {
			if r.Port == 5432 && r.Protocol == gatewaywire.TCP {
				return !r.Ready && len(r.Addresses) == 0
			}
		}
		return false
	})
	require.NoError(t, e.SetPublic(t.Context(), ingress.Public{Off: "the owner keeps the public out", Fix: "ask"}))
	awaitIngress(t, e, k, runnerapi.ReasonNotPublic, "ask")
	assert.Empty(t, routesOf(t, e))
}
