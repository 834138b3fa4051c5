package app_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// awaitIngress waits until the App's condition about its ingress has a reason and a fix.
func awaitIngress(t *testing.T, e *app.Engine, k runnerapi.Key, reason, fix string) (urls []string) {
	t.Helper()
	eventually(t, reason+": "+fix, func() bool {
		a, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		urls = a.Status.PublicURLs
		i := slices.IndexFunc(a.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type == runnerapi.ConditionIngressReady })
		return i >= 0 && a.Status.Conditions[i].Reason == reason && contains(a.Status.Conditions[i].Fix, fix)
	})
	return urls
}

// TestVisitors_GatewayAlone: an App with visitors has no Ingress, and none of its routes serves
// anyone whom it has not let in.
func TestVisitors_GatewayAlone(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "guarded")
	const given, own = "guarded.apps.example.com", "www.example.org"
	spec := web()
	spec.Ports = []runnerapi.Port{{Name: "http", Port: 8080}, {Name: "admin", Port: 9090}}
	spec.Ingress = &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: own}, {Host: own, Path: "/admin", Port: 9090}}}
	deploy(t, e, k, spec)
	eventually(t, "there is an Ingress", func() bool { return exists(t, env, k, &networkingv1.Ingress{}) })

	spec.Ingress.Public, spec.Ingress.Visitors = true, &runnerapi.Visitors{AllowFrom: []string{"203.0.113.0/24"}, RequestsPerSecond: 5, MaxBodyBytes: 10}
	deploy(t, e, k, spec)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{given: {Served: true}})))
	awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, "wait until the control plane knows the host")
	eventually(t, "the Ingress is gone", func() bool { return !exists(t, env, k, &networkingv1.Ingress{}) })
	routes := routesOf(t, e)
	require.Len(t, routes, 3)
	for i, want := range []ingress.Route{{Host: given, Path: "/", Port: 8080}, {Host: own, Path: "/", Port: 8080}, {Host: own, Path: "/admin", Port: 9090}} {
		assert.Equal(t, want, ingress.Route{Host: routes[i].Host, Path: routes[i].Path, Port: routes[i].Port})
		assert.Equal(t, gateway.Visitors{AllowFrom: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}, PerSecond: 5, MaxBodyBytes: 10}, routes[i].Visitors)
		assert.Len(t, routes[i].Addresses, 1)
	}
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{given: {Served: true}, own: {Served: true}})))
	assert.Equal(t, []string{"https://" + given + "/", "https://" + own + "/", "https://" + own + "/admin"}, awaitIngress(t, e, k, runnerapi.ReasonServed, ""))
	require.NoError(t, e.SetPublic(t.Context(), ingress.Public{}))
	awaitIngress(t, e, k, runnerapi.ReasonNoGateway, "--gateway-domain")
}

// TestVisitors_Passwords follows the Secret. Without a valid one, nobody is let in.
func TestVisitors_Passwords(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "signed")
	const host = "signed.apps.example.com"
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}})))
	spec := web()
	spec.Ports = []runnerapi.Port{{Port: 8080}}
	spec.Ingress = &runnerapi.Ingress{Public: true, Visitors: &runnerapi.Visitors{BasicAuthSecret: "users"}}
	deploy(t, e, k, spec)
	rollOut(t, env, k)
	closed := func(why string) {
		t.Helper()
		assert.Empty(t, awaitIngress(t, e, k, runnerapi.ReasonHostNotServed, why))
		routes := routesOf(t, e)
		require.Len(t, routes, 1)
		assert.False(t, routes[0].Ready)
		assert.Empty(t, routes[0].Addresses)
		assert.Contains(t, routes[0].Reason, why)
	}
	closed("there is no Secret users")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "users"}}
	write := func(create bool, data map[string][]byte) {
		t.Helper()
		secret.Data = data
		if create {
			require.NoError(t, env.Client.Create(t.Context(), secret))
		} else {
			require.NoError(t, env.Client.Update(t.Context(), secret))
		}
		require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: k.Namespace, Name: "users"}))
	}
	write(true, map[string][]byte{"file": nil})
	closed("has no key auth")
	write(false, map[string][]byte{"auth": []byte("anna:open sesame")})
	closed("line 1: its hash is of neither")
	write(false, map[string][]byte{"auth": []byte("anna:$apr1$abcdefgh$HBDXeN/WZ4XdfTpFFJ3tE0")})
	awaitIngress(t, e, k, runnerapi.ReasonServed, "")
	first := routesOf(t, e)[0].Visitors.Users
	require.NotNil(t, first)
	write(false, map[string][]byte{"auth": []byte("anna:$apr1$abcdefgh$HBDXeN/WZ4XdfTpFFJ3tE0"), "other": nil})
	assert.Same(t, first, routesOf(t, e)[0].Visitors.Users, "its users stay signed in")
	require.NoError(t, env.Client.Delete(t.Context(), secret))
	require.NoError(t, e.ContentChanged(t.Context(), runnerapi.RestartOnSecrets, runnerapi.Key{Namespace: k.Namespace, Name: "users"}))
	closed("there is no Secret users")

	spec.Ingress.Visitors, spec.Ingress.Annotations = nil, map[string]string{"nginx.ingress.kubernetes.io/auth-url": "https://sso.example.com"}
	deploy(t, e, k, spec)
	closed("does not carry the annotation nginx.ingress.kubernetes.io/auth-url")
}
