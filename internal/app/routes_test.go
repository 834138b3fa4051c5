package app_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// publish says of an Ingress what its controller would once it serves it.
func publish(t *testing.T, env *kubetest.Env, k runnerapi.Key) {
	t.Helper()
	in := &networkingv1.Ingress{}
	eventually(t, "the ingress exists", func() bool { return exists(t, env, k, in) })
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	require.NoError(t, env.Client.Status().Update(t.Context(), in))
}

func TestRoutesFollowAnApp(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	var told atomic.Int64
	config := limitedTo(env, ns)
	config.Routed = func() { told.Add(1) }
	e, _ := startWith(t, config)
	routes := func() (own []app.Route) {
		all, err := e.Routes(t.Context())
		require.NoError(t, err)
		for _, r := range all {
			if r.App.Namespace == ns {
				own = append(own, r)
			}
		}
		return own
	}
	awaitReason := func(reason string) {
		t.Helper()
		eventually(t, "reason: "+reason, func() bool {
			now := routes()
			return len(now) > 0 && now[0].Reason == reason
		})
	}
	k := key(ns, "shop")
	spec := web()
	spec.Ports = []runnerapi.Port{{Name: "http", Port: 8080, Service: 80}, {Name: "admin", Port: 9090}}
	spec.Ingress = &runnerapi.Ingress{Class: "nginx", Hosts: []runnerapi.IngressHost{
		{Host: "shop.example.com", TLSSecret: "cert"},
		{Host: "shop.example.com", Path: "/admin", Port: 9090, TLSSecret: "cert"},
		{Host: "*.example.com"},
	}}
	deploy(t, e, k, spec)
	eventually(t, "the routes are there", func() bool { return len(routes()) == 3 })
	awaitReason("no pod is ready")
	want := []app.Route{
		{App: k, Host: "*.example.com", Path: "/", PathType: "Prefix", Port: 80},
		{App: k, Host: "shop.example.com", Path: "/", PathType: "Prefix", TLS: true, Port: 80},
		{App: k, Host: "shop.example.com", Path: "/admin", PathType: "Prefix", TLS: true, Port: 9090},
	}
	for i := range want {
		want[i].Reason = "no pod is ready"
	}
	assert.Equal(t, want, routes())

	rollOut(t, env, k)
	awaitReason("no ingress controller of the class nginx has published an address of the Ingress")
	before := told.Load()
	publish(t, env, k)
	awaitReason("")
	assert.True(t, routes()[0].Ready)
	eventually(t, "it was told", func() bool { return told.Load() > before })

	// An Ingress with the agent's mark that is of no App is nobody's.
	stranger := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "stranger", Labels: managed.AppLabels("shop")}}
	stranger.Spec.Rules = []networkingv1.IngressRule{{Host: "stranger.example.com"}}
	require.NoError(t, env.Client.Create(t.Context(), stranger))

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	eventually(t, "the routes are gone", func() bool { return len(routes()) == 0 })
}
