package app_test

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestRoutes_FollowApp(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	var told atomic.Int64
	config := limitedTo(env, ns)
	config.Routed = func() { told.Add(1) }
	e, _ := startWith(t, config)
	routes := func() (own []ingress.Route) {
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
	want := []ingress.Route{
		{App: k, Host: "*.example.com", Path: "/", PathType: "Prefix", Service: "shop", Port: 80},
		{App: k, Host: "shop.example.com", Path: "/", PathType: "Prefix", TLS: true, Service: "shop", Port: 80},
		{App: k, Host: "shop.example.com", Path: "/admin", PathType: "Prefix", TLS: true, Service: "shop", Port: 9090},
	}
	service := &corev1.Service{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "shop"}, service))
	for i := range want {
		want[i].Reason = "no pod is ready"
	}
	got := routes()
	for i := range got {
		assert.Equal(t, []string{net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(got[i].Port)))}, got[i].Addresses)
		assert.False(t, got[i].Created.IsZero())
		got[i].Addresses, got[i].Created = nil, time.Time{}
	}
	assert.Equal(t, want, got)

	before := told.Load()
	rollOut(t, env, k)
	awaitReason("")
	assert.True(t, routes()[0].Ready, "no ingress controller is needed")
	eventually(t, "it was told", func() bool { return told.Load() > before })

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	eventually(t, "the routes are gone", func() bool { return len(routes()) == 0 })
}

// TestRoutes_OfForeignIngresses has an Ingress with the agent's label that belongs to no App. It
// may lead only to Services with that label.
func TestRoutes_OfForeignIngresses(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := startWith(t, limitedTo(env, ns))
	meta := func(name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}
	}
	ports := []corev1.ServicePort{{Name: "web", Port: 80, TargetPort: intstr.FromInt32(8080), AppProtocol: new("kubernetes.io/h2c")}}
	in := &networkingv1.Ingress{ObjectMeta: meta("site", objectmeta.Labels())}
	for _, name := range []string{"own", "foreign", "elsewhere", "headless", "none"} {
		in.Spec.Rules = append(in.Spec.Rules, networkingv1.IngressRule{Host: name + ".example.com", IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{
				Path: "/", PathType: new(networkingv1.PathTypePrefix),
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Number: 80}}},
			}}},
		}})
	}
	for _, o := range []client.Object{
		in,
		&corev1.Service{ObjectMeta: meta("own", objectmeta.Labels()), Spec: corev1.ServiceSpec{Ports: ports}},
		&corev1.Service{ObjectMeta: meta("foreign", nil), Spec: corev1.ServiceSpec{Ports: ports}},
		&corev1.Service{ObjectMeta: meta("elsewhere", objectmeta.Labels()), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "metadata.internal", Ports: ports,
		}},
		&corev1.Service{ObjectMeta: meta("headless", objectmeta.Labels()), Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Ports: ports, Selector: map[string]string{"app": "site"},
		}},
	} {
		require.NoError(t, env.Client.Create(t.Context(), o))
	}
	routes := func() map[string]ingress.Route {
		all, err := e.Routes(t.Context())
		require.NoError(t, err)
		byHost := map[string]ingress.Route{}
		for _, r := range all {
			byHost[strings.TrimSuffix(r.Host, ".example.com")] = r
		}
		return byHost
	}
	eventually(t, "the cache has all Services", func() bool {
		now := routes()
		return len(now) == 5 && now["own"].Ready && strings.Contains(now["elsewhere"].Reason, "ExternalName") &&
			strings.Contains(now["headless"].Reason, "no pod is ready")
	})
	now := routes()
	assert.Empty(t, now["own"].App.Name)
	assert.Len(t, now["own"].Addresses, 1)
	assert.True(t, now["own"].HTTP2)
	for name, reason := range map[string]string{
		"foreign": "with the agent's label", "none": "with the agent's label", "elsewhere": "ExternalName", "headless": "no pod is ready",
	} {
		assert.Empty(t, now[name].Addresses, name)
		assert.Contains(t, now[name].Reason, reason, name)
	}
	pod := &corev1.Pod{ObjectMeta: meta("site-0", map[string]string{objectmeta.ManagedBy: objectmeta.ManagedByAgent, "app": "site"})}
	pod.Spec.Containers = []corev1.Container{{Name: "web", Image: "example.com/web:1"}}
	require.NoError(t, env.Client.Create(t.Context(), pod))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "192.0.2.7", PodIPs: []corev1.PodIP{{IP: "192.0.2.7"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	require.NoError(t, env.Client.Status().Update(t.Context(), pod))
	eventually(t, "it leads to the pod", func() bool { return slices.Equal(routes()["headless"].Addresses, []string{"192.0.2.7:8080"}) })
}
