package ingress

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// gatewayOf decodes a Gateway shop/web with listeners.
func gatewayOf(t *testing.T, listeners string) *gatewayObject {
	t.Helper()
	o := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(`{metadata: {namespace: shop, name: web, generation: 3}, spec: {gatewayClassName: pipeops, listeners: [`+listeners+`]}}`), &o))
	g, err := decodeObject[gatewayObject](&unstructured.Unstructured{Object: o})
	require.NoError(t, err)
	return g
}

func parentsWith(g *gatewayObject) *parents {
	return &parents{
		gateways: map[types.NamespacedName]*gatewayObject{{Namespace: g.Namespace, Name: g.Name}: g},
		labelsOf: func(namespace string) labels.Set { return labels.Set{"team": namespace} },
	}
}

func TestParents_Attach(t *testing.T) {
	p := parentsWith(gatewayOf(t, `
		{name: https, hostname: "*.example.com", port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: All}}},
		{name: near, hostname: near.example.org, port: 80, protocol: HTTP},
		{name: team, hostname: team.example.net, port: 443, protocol: HTTPS, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: back}}}}},
		{name: any, port: 443, protocol: HTTPS, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: GRPCRoute}]}},
		{name: odd, port: 8080, protocol: HTTP}, {name: pass, port: 443, protocol: HTTPS, tls: {mode: Passthrough}},
		{name: tcp, port: 443, protocol: HTTPS, allowedRoutes: {kinds: [{group: gateway.networking.k8s.io, kind: TCPRoute}]}}`))
	for name, c := range map[string]struct {
		namespace, ref, hosts, reason string
		at                            []string
	}{
		"a host below a wildcard":    {"back", `{name: web, namespace: shop, sectionName: https}`, `[a.example.com, x.example.org]`, "Accepted", []string{"a.example.com"}},
		"a wildcard and a host":      {"shop", `{name: web, sectionName: near}`, `["*.example.org"]`, "Accepted", []string{"near.example.org"}},
		"the same wildcard":          {"shop", `{name: web, sectionName: https}`, `["*.example.com"]`, "Accepted", []string{"*.example.com"}},
		"the listener's host":        {"shop", `{name: web, sectionName: https}`, `[]`, "Accepted", []string{"*.example.com"}},
		"no host at all":             {"shop", `{name: web, sectionName: any}`, `[]`, "UnsupportedValue", nil},
		"any host":                   {"shop", `{name: web, sectionName: any}`, `[x.example.org]`, "Accepted", []string{"x.example.org"}},
		"by port":                    {"shop", `{name: web, port: 80}`, `[near.example.org]`, "Accepted", []string{"near.example.org"}},
		"of all listeners":           {"shop", `{group: gateway.networking.k8s.io, kind: Gateway, name: web}`, `[near.example.org, a.example.com]`, "Accepted", []string{"a.example.com", "near.example.org"}},
		"another host":               {"back", `{name: web, namespace: shop, sectionName: https}`, `[example.com, a.example.org]`, "NoMatchingListenerHostname", nil},
		"another namespace":          {"back", `{name: web, namespace: shop, sectionName: near}`, `[near.example.org]`, "NotAllowedByListeners", nil},
		"a selected namespace":       {"back", `{name: web, namespace: shop, sectionName: team}`, `[team.example.net]`, "Accepted", []string{"team.example.net"}},
		"one that is not selected":   {"shop", `{name: web, sectionName: team}`, `[team.example.net]`, "NotAllowedByListeners", nil},
		"of another kind":            {"shop", `{name: web, sectionName: tcp}`, `[a.example.com]`, "NotAllowedByListeners", nil},
		"no such listener":           {"shop", `{name: web, sectionName: none}`, `[a.example.com]`, "NoMatchingParent", nil},
		"a port that is not there":   {"shop", `{name: web, sectionName: odd}`, `[a.example.com]`, "NoMatchingParent", nil},
		"TLS that is passed on":      {"shop", `{name: web, sectionName: pass}`, `[a.example.com]`, "NoMatchingParent", nil},
		"another Gateway":            {"back", `{name: web}`, `[a.example.com]`, "", nil},
		"a parent of another kind":   {"shop", `{kind: Service, group: "", name: web}`, `[a.example.com]`, "", nil},
		"a parent that is malformed": {"shop", `{name: [web]}`, `[a.example.com]`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := object(t, c.namespace, `{parentRefs: [`+c.ref+`], hostnames: `+c.hosts+`}`)
			all := p.attach(h)
			hosts, refused := p.servedAt(h)
			if c.reason == "" {
				assert.Empty(t, all)
				assert.Equal(t, hostnamesOf(h), hosts)
				assert.Empty(t, refused, "its label says that it is served")
				return
			}
			require.Len(t, all, 1)
			assert.Equal(t, c.reason, all[0].reason)
			assert.Equal(t, c.at, all[0].hosts)
			if c.reason != accepted {
				assert.Contains(t, refused, "the Gateway shop/web does not accept the HTTPRoute site: ")
				assert.NotEmpty(t, all[0].message)
				return
			}
			assert.Equal(t, c.at, hosts)
			assert.Empty(t, refused)
		})
	}
	h := object(t, "shop", `{parentRefs: [{name: other}, {name: web, sectionName: near}], hostnames: [near.example.org, free.example.net]}`)
	hosts, _ := p.servedAt(h)
	assert.Equal(t, []string{"near.example.org"}, hosts, "a parent of ours limits the hosts")
}

// reasons returns conditions as TYPE=REASON.
func reasons(conditions []metav1.Condition) (all []string) {
	for _, c := range conditions {
		all = append(all, c.Type+"="+c.Reason)
	}
	return all
}

func TestGateway_StatusOf(t *testing.T) {
	const https = `{name: https, port: 443, protocol: HTTPS}`
	g := gatewayOf(t, https)
	router := &gatewayAPI{Router: &Router{}}
	assert.Equal(t, []string{"Accepted=Accepted", "Programmed=AddressNotAssigned"}, reasons(router.statusOf(g, nil).Conditions))
	router.public.Store(&Public{Off: "the owner keeps the public out", Domain: "apps.example.com"})
	assert.Equal(t, "the owner keeps the public out", router.statusOf(g, nil).Conditions[1].Message)
	router.public.Store(&Public{Domain: "apps.example.com", Address: "agent.apps.example.com"})
	status := router.statusOf(g, map[attachedTo]int32{{types.NamespacedName{Namespace: "shop", Name: "web"}, "https"}: 2})
	assert.Equal(t, []gatewayAddress{{"Hostname", "agent.apps.example.com"}}, status.Addresses)
	assert.Equal(t, []string{"Accepted=Accepted", "Programmed=Programmed"}, reasons(status.Conditions))
	require.Len(t, status.Listeners, 1)
	assert.Equal(t, int32(2), status.Listeners[0].AttachedRoutes)
	assert.Equal(t, []routeKind{{gatewayGroup, "HTTPRoute"}}, status.Listeners[0].SupportedKinds)
	assert.Equal(t, []string{"Accepted=Accepted", "Conflicted=NoConflicts", "ResolvedRefs=ResolvedRefs", "Programmed=Programmed"}, reasons(status.Listeners[0].Conditions))
	for _, c := range append(status.Conditions, status.Listeners[0].Conditions...) {
		assert.Equal(t, int64(3), c.ObservedGeneration)
	}
	g.Status = status
	assert.Equal(t, status, router.statusOf(g, map[attachedTo]int32{{types.NamespacedName{Namespace: "shop", Name: "web"}, "https"}: 2}), "nothing changes by itself")

	status = router.statusOf(gatewayOf(t, https+`, {name: tcp, port: 1, protocol: TCP, allowedRoutes: {kinds: [{kind: TCPRoute}]}}`), nil)
	assert.Equal(t, []string{"Accepted=ListenersNotValid", "Programmed=Programmed"}, reasons(status.Conditions))
	assert.Equal(t, []string{"Accepted=UnsupportedProtocol", "Conflicted=NoConflicts", "ResolvedRefs=InvalidRouteKinds", "Programmed=Invalid"}, reasons(status.Listeners[1].Conditions))
	assert.Empty(t, status.Listeners[1].SupportedKinds)
	g.Spec.Addresses = []map[string]any{{"value": "192.0.2.1"}}
	assert.Equal(t, []string{"Accepted=UnsupportedAddress", "Programmed=Invalid"}, reasons(router.statusOf(g, nil).Conditions))
}

func TestHTTPRoute_ParentsOf(t *testing.T) {
	router, p := &gatewayAPI{Router: &Router{}}, parentsWith(gatewayOf(t, `{name: https, hostname: "*.example.com", port: 443, protocol: HTTPS}`))
	h := object(t, "shop", `{parentRefs: [{name: web}, {name: theirs}], hostnames: [a.example.com], rules: [{backendRefs: []}]}`)
	theirs := map[string]any{"parentRef": map[string]any{"name": "theirs"}, "controllerName": "example.com/gateway", "conditions": []any{}}
	stale := map[string]any{"parentRef": map[string]any{"name": "old"}, "controllerName": ControllerName, "conditions": []any{}}
	h.Object["status"] = map[string]any{"parents": []any{theirs, stale}}
	all, err := router.parentsOf(t.Context(), h, p.attach(h), nil)
	require.NoError(t, err)
	require.Len(t, all, 2, "what is theirs stays, and what is stale goes")
	assert.Equal(t, "example.com/gateway", all[0].ControllerName)
	assert.Equal(t, map[string]any{"name": "web"}, all[1].ParentRef)
	assert.Equal(t, []string{"Accepted=Accepted", "ResolvedRefs=ResolvedRefs"}, reasons(all[1].Conditions))

	for rules, want := range map[string][]string{
		`{backendRefs: [{name: x, kind: ServiceImport, group: a, port: 80}]}`: {"Accepted=Accepted", "ResolvedRefs=InvalidKind"},
		`{sessionPersistence: {sessionName: a}}`:                              {"Accepted=UnsupportedValue", "ResolvedRefs=ResolvedRefs"},
	} {
		h := object(t, "shop", `{parentRefs: [{name: web}], hostnames: [a.example.com], rules: [`+rules+`]}`)
		all, err := router.parentsOf(t.Context(), h, p.attach(h), nil)
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, want, reasons(all[0].Conditions), rules)
	}
	none := object(t, "shop", `{parentRefs: [{name: theirs}], hostnames: [a.example.com]}`)
	none.Object["status"] = map[string]any{"parents": []any{theirs}}
	all, err = router.parentsOf(t.Context(), none, p.attach(none), nil)
	require.NoError(t, err)
	assert.Nil(t, all, "there is nothing to say")
}
