package app_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPassthrough_RouteAndStatus: a host with passthrough has a route and no Ingress. An App cannot
// have a host of an older one in another way.
func TestPassthrough_RouteAndStatus(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "base")
	const host = "db.example.com"
	spec := web()
	spec.Ports = []runnerapi.Port{{Name: "pg", Port: 5432}}
	spec.Ingress = &runnerapi.Ingress{
		Hosts:    []runnerapi.IngressHost{{Host: host, Port: 5432, Passthrough: true}},
		Visitors: &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24"}},
	}
	deploy(t, e, k, spec)
	rollOut(t, env, k)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(nil)))
	awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, "wait until the control plane knows the host")
	routes := routesOf(t, e)
	require.Len(t, routes, 1)
	assert.Equal(t, ingress.Route{Host: host, Protocol: gatewaywire.TLS, Port: 5432},
		ingress.Route{Host: routes[0].Host, Protocol: routes[0].Protocol, Port: routes[0].Port})
	assert.Len(t, routes[0].Addresses, 1)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, routes[0].Visitors.AllowFrom)

	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}})))
	assert.Equal(t, []string{"tls://" + host + ":443"}, awaitIngress(t, e, k, runnerapi.ReasonServed, ""))
	in := &networkingv1.Ingress{}
	require.Error(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, in), "it has no Ingress")

	spec.Ingress.Visitors = nil
	spec.Ingress.Hosts = append(spec.Ingress.Hosts, runnerapi.IngressHost{Host: "www.example.com", Port: 5432})
	deploy(t, e, k, spec)
	eventually(t, "the other host has an Ingress, and this one has not", func() bool {
		err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, in)
		return err == nil && len(in.Spec.Rules) == 1 && in.Spec.Rules[0].Host == "www.example.com"
	})
}
