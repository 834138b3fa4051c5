package app_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// publicWith returns what a control plane with a gateway says.
func publicWith(hosts map[string]ingress.PublicHost) ingress.Public {
	return ingress.Public{
		Domain: "apps.example.com", Hosts: hosts,
		Given: func(k runnerapi.Key) string { return k.Name + ".apps.example.com" },
	}
}

// TestPublicApp_GetsHost has a host below the gateway's domain, and no Ingress. Its status follows what the
// gateway does.
func TestPublicApp_GetsHost(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := startWith(t, limitedTo(env, ns))
	k := key(ns, "open")
	spec := web()
	spec.Ports = []runnerapi.Port{{Name: "dns", Port: 53, Protocol: "UDP"}, {Name: "http", Port: 8080, Service: 80}}
	spec.Ingress = &runnerapi.Ingress{Public: true}
	deploy(t, e, k, spec)
	const host = "open.apps.example.com"

	awaitPublic := func(what, reason, message string, urls ...string) {
		t.Helper()
		eventually(t, what, func() bool {
			a, err := e.Get(t.Context(), k)
			require.NoError(t, err)
			i := slices.IndexFunc(a.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type == runnerapi.ConditionIngressReady })
			return i >= 0 && a.Status.Conditions[i].Reason == reason && contains(a.Status.Conditions[i].Message, message) &&
				slices.Equal(a.Status.PublicURLs, urls)
		})
	}
	routes := func() []ingress.Route {
		all, err := e.Routes(t.Context())
		require.NoError(t, err)
		return all
	}
	assert.Empty(t, routes(), "nothing is known of a gateway")

	require.NoError(t, e.SetPublic(t.Context(), ingress.Public{}))
	awaitPublic("there is no gateway", runnerapi.ReasonNoGateway, "no gateway")
	require.NoError(t, e.SetPublic(t.Context(), publicWith(nil)))
	awaitPublic("its host is not known yet", runnerapi.ReasonHostNotServed, host)
	eventually(t, "the route is there", func() bool {
		all := routes()
		return len(all) == 1 && all[0].Host == host && all[0].Path == "/" && all[0].Port == 80 && all[0].Service == "open" && len(all[0].Addresses) == 1
	})
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Reason: "another agent has it"}})))
	awaitPublic("the gateway does not serve it", runnerapi.ReasonHostNotServed, host)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}})))
	awaitPublic("it is served", runnerapi.ReasonServed, "", "https://"+host+"/")
	err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "open"}, &networkingv1.Ingress{})
	assert.True(t, apierrors.IsNotFound(err), "no ingress controller is to take the host: %v", err)

	off := publicWith(nil)
	off.Off, off.Fix = "the owner keeps the public out", "ask the owner"
	require.NoError(t, e.SetPublic(t.Context(), off))
	awaitPublic("the cluster's owner keeps the public out", runnerapi.ReasonNotPublic, "keeps the public out")
	assert.Empty(t, routes())

	spec.Ingress.Hosts = []runnerapi.IngressHost{{Host: "www.example.org"}}
	_, err = e.Deploy(t.Context(), k, spec, byTest)
	require.NoError(t, err)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}, "www.example.org": {Reason: "set a CNAME"}})))
	awaitPublic("one host of two is served", runnerapi.ReasonHostNotServed, "www.example.org", "https://"+host+"/")
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}, "www.example.org": {Served: true}})))
	awaitPublic("both are", runnerapi.ReasonServed, "", "https://"+host+"/", "https://www.example.org/")
}

// TestPublicApp_KeepsStatus starts an agent that does not know the gateway's state yet.
func TestPublicApp_KeepsStatus(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, stop := startWith(t, limitedTo(env, ns))
	k := key(ns, "open")
	spec := web()
	spec.Ports = []runnerapi.Port{{Port: 8080}}
	spec.Ingress = &runnerapi.Ingress{Public: true}
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{"open.apps.example.com": {Served: true}})))
	deploy(t, e, k, spec)
	urls := func() []string {
		a, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		return a.Status.PublicURLs
	}
	want := []string{"https://open.apps.example.com/"}
	eventually(t, "it is served", func() bool { return slices.Equal(want, urls()) })
	stop()
	e, _ = startWith(t, limitedTo(env, ns))
	spec.Image = "example.com/web:2"
	deploy(t, e, k, spec)
	eventually(t, "the new spec is observed", func() bool {
		a, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		return a.Status.ObservedGeneration == a.Generation
	})
	assert.Equal(t, want, urls())
}
