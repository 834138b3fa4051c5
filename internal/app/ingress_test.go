package app_test

import (
	"context"
	"net"
	"os"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func routesOf(t *testing.T, e *app.Engine) []ingress.Route {
	t.Helper()
	all, err := e.Routes(t.Context())
	require.NoError(t, err)
	return all
}

// routesByHost returns the routes by their host below example.com.
func routesByHost(t *testing.T, e *app.Engine) map[string]ingress.Route {
	t.Helper()
	byHost := map[string]ingress.Route{}
	for _, r := range routesOf(t, e) {
		byHost[strings.TrimSuffix(r.Host, ".example.com")] = r
	}
	return byHost
}

func TestRoutes_FollowApp(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	var notified atomic.Int64
	config := limitedTo(env, ns)
	config.Routed = func() { notified.Add(1) }
	e, _ := startWith(t, config)
	routes := func() []ingress.Route { return routesOf(t, e) }
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
	service := get(t, env, k, &corev1.Service{})
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

	before := notified.Load()
	rollOut(t, env, k)
	awaitReason("")
	assert.True(t, routes()[0].Ready, "no ingress controller is needed")
	eventually(t, "Routed is called", func() bool { return notified.Load() > before })

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
	routes := func() map[string]ingress.Route { return routesByHost(t, e) }
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

// publicWith returns what a control plane with a gateway reports of these hosts.
func publicWith(hosts map[string]ingress.PublicHost) ingress.Public {
	return ingress.Public{
		Domain: "apps.example.com", Hosts: hosts,
		Given: func(k runnerapi.Key) string { return k.Name + ".apps.example.com" },
	}
}

// TestPublicApp_GetsHost has a host below the gateway's domain, and no Ingress. Its status follows
// what the gateway does.
func TestPublicApp_GetsHost(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "open")
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
	routes := func() []ingress.Route { return routesOf(t, e) }
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
	assert.False(t, exists(t, env, k, &networkingv1.Ingress{}), "no ingress controller is to take the host")

	off := publicWith(nil)
	off.Off, off.Fix = "the owner keeps the public out", "ask the owner"
	require.NoError(t, e.SetPublic(t.Context(), off))
	awaitPublic("the cluster's owner keeps the public out", runnerapi.ReasonNotPublic, "keeps the public out")
	assert.Empty(t, routes())

	spec.Ingress.Hosts = []runnerapi.IngressHost{{Host: "www.example.org"}}
	deploy(t, e, k, spec)
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}, "www.example.org": {Reason: "set a CNAME"}})))
	awaitPublic("one host of two is served", runnerapi.ReasonHostNotServed, "www.example.org", "https://"+host+"/")
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true}, "www.example.org": {Served: true}})))
	awaitPublic("both are", runnerapi.ReasonServed, "", "https://"+host+"/", "https://www.example.org/")
}

// TestPublicApp_KeepsHost: another App that names the host, with a longer path, gets none of its
// requests, and is told so.
func TestPublicApp_KeepsHost(t *testing.T) {
	t.Parallel()
	_, e, k := onControlPlane(t, "open")
	const host = "open.apps.example.com"
	require.NoError(t, e.SetPublic(t.Context(), publicWith(map[string]ingress.PublicHost{host: {Served: true, Given: true}})))
	spec := web()
	spec.Ports = []runnerapi.Port{{Port: 8080}}
	spec.Ingress = &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: host, Path: "/x"}}}
	thief := key(k.Namespace, "thief")
	deploy(t, e, thief, spec)
	spec.Ingress = &runnerapi.Ingress{Public: true}
	deploy(t, e, k, spec)
	eventually(t, "the thief's route is refused", func() bool {
		all := routesOf(t, e)
		return len(all) == 2 && all[0].App == k && all[0].Port == 8080 && !all[0].Refused &&
			all[1].App == thief && all[1].Refused && all[1].Port == 0 && all[1].Addresses == nil
	})
	eventually(t, "the thief is told", func() bool {
		a, err := e.Get(t.Context(), thief)
		require.NoError(t, err)
		i := slices.IndexFunc(a.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type == runnerapi.ConditionIngressReady })
		return i >= 0 && contains(a.Status.Conditions[i].Fix, "given to another App") && a.Status.PublicURLs == nil
	})
}

// TestPublicApp_OlderRoute: of two Apps with one host and path, the older one is served, and the
// other is told so. It is served when the older one has gone.
func TestPublicApp_OlderRoute(t *testing.T) {
	t.Parallel()
	_, e, first := onControlPlane(t, "first")
	const host = "shop.example.com"
	second := key(first.Namespace, "another")
	know := func() {
		public := publicWith(map[string]ingress.PublicHost{host: {Served: true}})
		public.Routes = ingress.RoutesByApp(routesOf(t, e))
		require.NoError(t, e.SetPublic(t.Context(), public))
	}
	know()
	told := func(k runnerapi.Key, fix string, urls ...string) {
		t.Helper()
		eventually(t, "the App is told", func() bool {
			know()
			a, err := e.Get(t.Context(), k)
			require.NoError(t, err)
			i := slices.IndexFunc(a.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type == runnerapi.ConditionIngressReady })
			return i >= 0 && contains(a.Status.Conditions[i].Fix, fix) && slices.Equal(a.Status.PublicURLs, urls)
		})
	}
	spec := web()
	spec.Ports = []runnerapi.Port{{Port: 8080}}
	spec.Ingress = &runnerapi.Ingress{Hosts: []runnerapi.IngressHost{{Host: host}}}
	deploy(t, e, first, spec)
	told(first, "", "https://"+host+"/")
	created, err := e.Get(t.Context(), first)
	require.NoError(t, err)
	eventually(t, "another second has begun: Kubernetes' times have no more", func() bool {
		return time.Since(created.CreatedAt) > time.Second
	})
	deploy(t, e, second, spec)
	told(second, "an older route")
	told(first, "", "https://"+host+"/")
	require.NoError(t, e.Delete(t.Context(), first, byTest))
	told(second, "", "https://"+host+"/")
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

// gatewayAPIPatience is longer than it takes an agent to see that a kind was installed.
const gatewayAPIPatience = 5 * time.Minute

// gatewayAPI returns the definitions of the Gateway API's kinds.
func gatewayAPI(t *testing.T) (crds []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile("testdata/gatewayapi.yaml")
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		crd := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &crd.Object))
		if crd.Object != nil {
			crds = append(crds, crd)
		}
	}
	require.Len(t, crds, 4)
	return crds
}

// objectOf decodes an object of the Gateway API.
func objectOf(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &o.Object))
	return o
}

// TestGateway_Status has a GatewayClass of the agent's controller, and one of another.
func TestGateway_Status(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns, other := ownNamespace(t, env), ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Namespaces = append(config.Namespaces, other)
	e, _ := startWith(t, config)
	for _, crd := range gatewayAPI(t) {
		require.NoError(t, env.Client.Create(t.Context(), crd))
		t.Cleanup(func() { _ = env.Client.Delete(context.Background(), crd) })
	}
	create := func(o *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
		t.Helper()
		o.SetNamespace(namespace)
		eventually(t, "the kind is there", func() bool { return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)) == nil })
		return o
	}
	const api = "apiVersion: gateway.networking.k8s.io/v1, "
	ours := create(objectOf(t, `{`+api+`kind: GatewayClass, metadata: {name: pipeops}, spec: {controllerName: pipeops.io/gateway}}`), "")
	theirs := create(objectOf(t, `{`+api+`kind: GatewayClass, metadata: {name: others}, spec: {controllerName: example.com/gateway}}`), "")
	web := create(objectOf(t, `{`+api+`kind: Gateway, metadata: {name: web}, spec: {gatewayClassName: pipeops, listeners: [
		{name: https, hostname: "*.example.com", port: 443, protocol: HTTPS, tls: {options: {pipeops.io/certificate: gateway}}, allowedRoutes: {namespaces: {from: All}}},
		{name: near, hostname: "near.example.com", port: 80, protocol: HTTP},
		{name: odd, port: 8080, protocol: HTTP},
		{name: tcp, port: 5432, protocol: TCP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}]}}`), ns)
	foreign := create(objectOf(t, `{`+api+`kind: Gateway, metadata: {name: foreign}, spec: {gatewayClassName: others, listeners: [{name: http, port: 80, protocol: HTTP}]}}`), ns)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", Labels: objectmeta.Labels()}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}))
	const to = `rules: [{backendRefs: [{name: web, port: 80}]}]`
	served := create(httpRoute(t, ns, "served", `{parentRefs: [{name: web}, {name: foreign}, {name: web, sectionName: odd}], hostnames: [a.example.com, b.example.org], `+to+`}`), ns)
	broken := create(httpRoute(t, ns, "broken", `{parentRefs: [{name: web}], hostnames: [c.example.com], rules: [{backendRefs: [{name: none, port: 80}]}]}`), ns)
	uncarried := create(httpRoute(t, ns, "uncarried", `{parentRefs: [{name: web}], hostnames: [d.example.com], rules: [{filters: [{type: ExtensionRef, extensionRef: {group: a, kind: b, name: c}}]}]}`), ns)
	far := create(httpRoute(t, other, "far", `{parentRefs: [{name: web, namespace: `+ns+`, sectionName: near}], hostnames: [near.example.com], `+to+`}`), other)
	elsewhere := create(httpRoute(t, ns, "elsewhere", `{parentRefs: [{name: web}], hostnames: [www.example.org], `+to+`}`), ns)
	nameless := create(httpRoute(t, ns, "nameless", `{parentRefs: [{name: web, sectionName: https}], `+to+`}`), ns)
	unattached := create(httpRoute(t, ns, "unattached", `{parentRefs: [{name: foreign}], hostnames: [free.example.org], `+to+`}`), ns)

	read := func(o *unstructured.Unstructured) map[string]any {
		now := o.DeepCopy()
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), now))
		status, _, err := unstructured.NestedMap(now.Object, "status")
		require.NoError(t, err)
		return status
	}
	// said returns conditions as "TYPE=REASON".
	said := func(conditions any) (all []string) {
		list, _ := conditions.([]any)
		for _, c := range list {
			c := c.(map[string]any)
			all = append(all, c["type"].(string)+"="+c["reason"].(string))
		}
		return all
	}
	parentsOf := func(o *unstructured.Unstructured) (all [][]string) {
		list, _ := read(o)["parents"].([]any)
		for _, p := range list {
			all = append(all, said(p.(map[string]any)["conditions"]))
		}
		return all
	}
	within(t, gatewayAPIPatience, "the class is accepted", func() bool { return slices.Contains(said(read(ours)["conditions"]), "Accepted=Accepted") })
	within(t, gatewayAPIPatience, "the Gateway waits for an address", func() bool { return slices.Contains(said(read(web)["conditions"]), "Programmed=AddressNotAssigned") })
	public := publicWith(nil)
	public.Address = "agent.apps.example.com"
	require.NoError(t, e.SetPublic(t.Context(), public))
	within(t, gatewayAPIPatience, "the Gateway is programmed", func() bool { return slices.Contains(said(read(web)["conditions"]), "Programmed=Programmed") })
	within(t, gatewayAPIPatience, "all are attached", func() bool {
		return len(parentsOf(nameless)) == 1 && len(parentsOf(served)) == 2 && len(parentsOf(far)) == 1
	})

	status := read(web)
	assert.Equal(t, []any{map[string]any{"type": "Hostname", "value": "agent.apps.example.com"}}, status["addresses"])
	assert.Contains(t, said(status["conditions"]), "Accepted=ListenersNotValid")
	listeners, _ := status["listeners"].([]any)
	require.Len(t, listeners, 4)
	assert.Equal(t, []string{"Accepted=Accepted", "Conflicted=NoConflicts", "ResolvedRefs=ResolvedRefs", "Programmed=Programmed"}, said(listeners[0].(map[string]any)["conditions"]))
	within(t, gatewayAPIPatience, "attached routes are counted", func() bool {
		listeners, _ := read(web)["listeners"].([]any)
		return listeners[0].(map[string]any)["attachedRoutes"] == int64(3) && listeners[1].(map[string]any)["attachedRoutes"] == int64(0)
	})
	assert.Contains(t, said(listeners[2].(map[string]any)["conditions"]), "Accepted=PortUnavailable")
	assert.Contains(t, said(listeners[3].(map[string]any)["conditions"]), "Accepted=UnsupportedProtocol")
	assert.Contains(t, said(listeners[3].(map[string]any)["conditions"]), "ResolvedRefs=InvalidRouteKinds")

	assert.Equal(t, [][]string{{"Accepted=Accepted", "ResolvedRefs=ResolvedRefs"}, {"Accepted=NoMatchingParent", "ResolvedRefs=ResolvedRefs"}}, parentsOf(served))
	assert.Equal(t, [][]string{{"Accepted=Accepted", "ResolvedRefs=BackendNotFound"}}, parentsOf(broken))
	assert.Equal(t, [][]string{{"Accepted=UnsupportedValue", "ResolvedRefs=ResolvedRefs"}}, parentsOf(uncarried))
	assert.Equal(t, [][]string{{"Accepted=NotAllowedByListeners", "ResolvedRefs=BackendNotFound"}}, parentsOf(far))
	assert.Equal(t, [][]string{{"Accepted=NoMatchingListenerHostname", "ResolvedRefs=ResolvedRefs"}}, parentsOf(elsewhere))
	assert.Equal(t, [][]string{{"Accepted=Accepted", "ResolvedRefs=ResolvedRefs"}}, parentsOf(nameless))
	assert.Empty(t, parentsOf(unattached), "its Gateway is another controller's")
	assert.NotContains(t, said(read(theirs)["conditions"]), "Accepted=Accepted")
	assert.NotContains(t, said(read(foreign)["conditions"]), "Accepted=Accepted")

	hosts := map[string]bool{}
	for _, r := range routesOf(t, e) {
		hosts[r.Host] = !r.Refused
	}
	assert.Equal(t, map[string]bool{
		"a.example.com": true, "c.example.com": true, "d.example.com": true, "*.example.com": true, "free.example.org": true,
		"near.example.com": false, "www.example.org": false,
	}, hosts, "a host that no listener has is not served")

	// What another controller says stays, and nothing is written again.
	now := served.DeepCopy()
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(served), now))
	parents, _, _ := unstructured.NestedSlice(now.Object, "status", "parents")
	parents = append([]any{map[string]any{"parentRef": map[string]any{"name": "foreign"}, "controllerName": "example.com/gateway", "conditions": []any{
		map[string]any{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	}}}, parents...)
	require.NoError(t, unstructured.SetNestedSlice(now.Object, parents, "status", "parents"))
	require.NoError(t, env.Client.Status().Update(t.Context(), now))
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none", Labels: objectmeta.Labels()}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}))
	within(t, gatewayAPIPatience, "the Service is found", func() bool {
		return slices.Equal(parentsOf(broken)[0], []string{"Accepted=Accepted", "ResolvedRefs=ResolvedRefs"})
	})
	version := now.GetResourceVersion()
	assert.Len(t, parentsOf(served), 3)
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(served), now))
	assert.Equal(t, version, now.GetResourceVersion())
	require.NoError(t, env.Client.Delete(t.Context(), web))
	within(t, gatewayAPIPatience, "what was said of it is taken back", func() bool { return len(parentsOf(served)) == 1 && len(parentsOf(broken)) == 0 })
}

// httpRoute returns an HTTPRoute with the agent's label.
func httpRoute(t *testing.T, ns, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: "+spec+"}"), &o.Object))
	o.SetNamespace(ns)
	o.SetName(name)
	o.SetLabels(objectmeta.Labels())
	return o
}

// TestHTTPRoute_FollowsCluster installs the Gateway API, and removes it.
func TestHTTPRoute_FollowsCluster(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns, other := ownNamespace(t, env), ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Namespaces = append(config.Namespaces, other)
	e, _ := startWith(t, config)
	routes := func() map[string]ingress.Route { return routesByHost(t, e) }
	assert.Empty(t, routes(), "the cluster lacks the kind, which is not an error")

	crds := gatewayAPI(t)
	for _, crd := range crds {
		require.NoError(t, env.Client.Create(t.Context(), crd))
		t.Cleanup(func() { _ = env.Client.Delete(t.Context(), crd) })
	}
	for _, at := range []string{ns, other} {
		require.NoError(t, env.Client.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: at, Name: "web", Labels: objectmeta.Labels()},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
	unlabelled := httpRoute(t, ns, "foreign", `{hostnames: [foreign.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`)
	unlabelled.SetLabels(nil)
	near := httpRoute(t, ns, "near", `{hostnames: [near.example.com], rules: [{backendRefs: [{name: web, port: 80}]}]}`)
	for _, o := range []client.Object{
		unlabelled, near,
		httpRoute(t, ns, "far", `{hostnames: [far.example.com], rules: [{backendRefs: [{name: web, namespace: `+other+`, port: 80}]}]}`),
		httpRoute(t, ns, "split", `{hostnames: [split.example.com], rules: [{backendRefs: [{name: web, port: 80, weight: 9}, {name: new, port: 80}]}]}`),
		httpRoute(t, ns, "whole", `{hostnames: [whole.example.com], rules: [{timeouts: {request: 2s}, backendRefs: [{name: web, port: 80}], matches: [
			{path: {type: RegularExpression, value: "/v[0-9]/.*"}, method: POST, headers: [{name: x-env, value: canary}], queryParams: [{name: q, value: "1"}]}],
			filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /in}}},
				{type: RequestMirror, requestMirror: {backendRef: {name: web, namespace: `+other+`, port: 80}}}]}]}`),
		httpRoute(t, ns, "moved", `{hostnames: [moved.example.com], rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: near.example.com, statusCode: 301}}]}]}`),
		httpRoute(t, ns, "spoof", `{hostnames: [spoof.example.com], rules: [{backendRefs: [{name: web, port: 80}], filters: [
			{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Forwarded-User, value: admin}]}}]}]}`),
	} {
		eventually(t, "the kind is there", func() bool { return client.IgnoreAlreadyExists(env.Client.Create(t.Context(), o)) == nil })
	}
	within(t, gatewayAPIPatience, "the routes are there", func() bool { return len(routes()) == 6 && routes()["near"].Ready })
	now := routes()
	assert.Len(t, now["near"].Addresses, 1)
	assert.Equal(t, "Prefix", now["near"].PathType)
	assert.Contains(t, now["split"].Reason, "there is no Service new")
	assert.Equal(t, []runnerapi.RouteShare{{Service: "web", Port: 80, Weight: 9}, {Service: "new", Port: 80, Weight: 1}}, now["split"].Shares)
	assert.Equal(t, "web", now["split"].Service)
	assert.True(t, len(now["split"].Backends) == 2 && len(now["split"].Backends[0].Addresses) == 1 && now["split"].Backends[1].Missing)
	assert.Equal(t, `POST, header X-Env="canary", query q="1"`, now["whole"].Conditions.String())
	assert.True(t, now["whole"].Ready && now["whole"].Pattern.MatchString("/v1/x") && now["whole"].Within == 2*time.Second)
	assert.Equal(t, &gateway.PathChange{Value: "/in"}, now["whole"].Filters.Path)
	assert.Empty(t, now["whole"].Filters.Mirrors, "no ReferenceGrant allows it")
	require.Len(t, now["whole"].Warnings, 1)
	assert.Contains(t, now["whole"].Warnings[0], "no ReferenceGrant in "+other)
	assert.True(t, now["moved"].Ready && now["moved"].Filters.Redirect.Host == "near.example.com")
	assert.Contains(t, now["spoof"].Reason, "set[0].name is X-Forwarded-User")
	assert.Nil(t, now["spoof"].Filters)
	assert.Contains(t, now["far"].Reason, "no ReferenceGrant in "+other)
	assert.Equal(t, other+"/web", now["far"].Service)

	grant := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: gateway.networking.k8s.io/v1beta1, kind: ReferenceGrant, spec: {
		from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: `+ns+`}], to: [{group: "", kind: Service, name: web}]}}`), &grant.Object))
	grant.SetNamespace(other)
	grant.SetName("web")
	require.NoError(t, env.Client.Create(t.Context(), grant))
	within(t, gatewayAPIPatience, "the grant is seen", func() bool { return routes()["far"].Ready })
	assert.Len(t, routes()["whole"].Filters.Mirrors, 1)
	require.NoError(t, env.Client.Delete(t.Context(), near))
	eventually(t, "a deleted one is withdrawn", func() bool { return len(routes()) == 5 })

	for _, crd := range crds {
		require.NoError(t, env.Client.Delete(t.Context(), crd))
	}
	within(t, gatewayAPIPatience, "all are withdrawn with the kind", func() bool { return len(routes()) == 0 })
}

// impatient is an Engine that gives volumes and metrics no more time than a test has.
func impatient(t *testing.T, env *kubetest.Env, ns string) *app.Engine {
	t.Helper()
	config := limitedTo(env, ns)
	config.Stabilization.Volume, config.Stabilization.Metrics = 5*time.Second, 5*time.Second
	e, _ := startWith(t, config)
	return e
}

// TestPublicURLs_OnlyServed follows an Ingress without class, controller and
// certificate until it has all of them.
func TestPublicURLs_OnlyServed(t *testing.T) {
	suite.Release(t, "an Ingress on its way to being served")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e := impatient(t, env, ns)
	k := key(ns, "shop")
	spec := web()
	spec.Ingress = &runnerapi.Ingress{Class: ns, Hosts: []runnerapi.IngressHost{
		{Host: "shop.example.com", TLSSecret: "cert"}, {Host: "plain.example.com"},
	}}
	await := func(reason string, urls ...string) {
		t.Helper()
		eventually(t, reason, func() bool {
			a, err := e.Get(t.Context(), k)
			require.NoError(t, err)
			sides := slices.DeleteFunc(a.Status.Conditions, func(c runnerapi.Condition) bool { return c.Type.Sums() })
			return len(sides) == 1 && sides[0].Type == runnerapi.ConditionIngressReady &&
				sides[0].Reason == reason && assert.ObjectsAreEqual(urls, a.Status.PublicURLs)
		})
	}
	secret := func(kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cert"}, Type: kind,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("-"), corev1.TLSPrivateKeyKey: []byte("-")},
		}
	}
	wrong := secret(corev1.SecretTypeOpaque)
	require.NoError(t, env.Client.Create(t.Context(), wrong))
	deploy(t, e, k, spec)
	await(runnerapi.ReasonBadTLSSecret)
	require.NoError(t, env.Client.Delete(t.Context(), wrong))
	await(runnerapi.ReasonNoTLSSecret)
	require.NoError(t, env.Client.Create(t.Context(), secret(corev1.SecretTypeTLS)))
	await(runnerapi.ReasonNoIngressClass)

	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/none"}}
	require.NoError(t, env.Client.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), class))) })
	publish(t, env, k)
	await(runnerapi.ReasonServed, "https://shop.example.com/", "http://plain.example.com/")
}

// publish sets the status of an Ingress, as its controller does once it serves it.
func publish(t *testing.T, env *kubetest.Env, k runnerapi.Key) {
	t.Helper()
	in := &networkingv1.Ingress{}
	eventually(t, "the ingress exists", func() bool { return exists(t, env, k, in) })
	in.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	require.NoError(t, env.Client.Status().Update(t.Context(), in))
}
