package ingress

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// object decodes what a cluster would have of a spec.
func object(t *testing.T, namespace, spec string) *unstructured.Unstructured {
	t.Helper()
	o := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &o))
	u := &unstructured.Unstructured{Object: o}
	u.SetNamespace(namespace)
	u.SetName("site")
	return u
}

func TestHTTPRoute_Accepted(t *testing.T) {
	h := object(t, "shop", `{parentRefs: [{name: any}], hostnames: [a.example.com, "*.b.example.com"], rules: [
		{backendRefs: [{name: web, port: 80, weight: 1}]},
		{name: api, matches: [{path: {type: Exact, value: /api}}, {path: {value: /v2}}],
			backendRefs: [{group: "", kind: Service, name: api, namespace: back, port: 8080}]}]}`)
	matches, reason := matchesOf(h)
	assert.Empty(t, reason)
	web, api := backendRef{"shop", "web", 80}, backendRef{"back", "api", 8080}
	assert.Equal(t, []httpMatch{{"/", "Prefix", web}, {"/api", "Exact", api}, {"/v2", "Prefix", api}}, matches)
	assert.Equal(t, []string{"a.example.com", "*.b.example.com"}, hostnamesOf(h))
	assert.Equal(t, []string{"web", "back/api"}, []string{web.text("shop"), api.text("shop")})
}

// Accepting a part of a route would send requests where its author does not expect them.
func TestHTTPRoute_RejectedAsWhole(t *testing.T) {
	const to = `backendRefs: [{name: web, port: 80}]`
	for rules, reason := range map[string]string{
		`{` + to + `, filters: [{type: RequestRedirect}]}`:                             "spec.rules[0].filters",
		`{` + to + `, timeouts: {request: 1s}}`:                                        "spec.rules[0].timeouts",
		`{` + to + `, fieldOfTomorrow: true}`:                                          "spec.rules[0].fieldOfTomorrow",
		`{` + to + `, matches: [{path: {value: /a}, headers: [{name: a, value: b}]}]}`: "spec.rules[0].matches[0].headers",
		`{` + to + `, matches: [{method: GET}]}`:                                       "spec.rules[0].matches[0].method",
		`{` + to + `, matches: [{queryParams: [{name: a, value: b}]}]}`:                "spec.rules[0].matches[0].queryParams",
		`{` + to + `, matches: [{path: {type: RegularExpression, value: "/a.*"}}]}`:    "spec.rules[0].matches[0].path.type",
		`{` + to + `, matches: [{path: {type: Exact, value: a}}]}`:                     "spec.rules[0].matches[0].path.value",
		`{backendRefs: [{name: web, port: 80, weight: 9}, {name: new, port: 80}]}`:     "has 2 backends",
		`{backendRefs: []}`:                                                                  "has 0 backends",
		`{backendRefs: [{name: web}]}`:                                                       "spec.rules[0].backendRefs[0].port",
		`{backendRefs: [{name: web, port: 70000}]}`:                                          "spec.rules[0].backendRefs[0].port",
		`{backendRefs: [{name: web, port: 80, weight: 0}]}`:                                  "spec.rules[0].backendRefs[0].weight",
		`{backendRefs: [{name: web, port: 80, filters: [{type: RequestMirror}]}]}`:           "spec.rules[0].backendRefs[0].filters",
		`{backendRefs: [{name: web, port: 80, kind: ServiceImport, group: multicluster.x}]}`: "is not a Service",
		`{` + to + `}, {` + to + `, retry: {attempts: 2}}`:                                   "spec.rules[1].retry",
	} {
		h := object(t, "shop", `{hostnames: [a.example.com], rules: [`+rules+`]}`)
		assert.Contains(t, Uncarried(h), reason, rules)
		assert.Contains(t, Uncarried(h), "HTTPRoute site is not served: ", rules)
		routes := (&Router{}).routesOfHTTPRoute(t.Context(), h, nil)
		require.NotEmpty(t, routes, rules)
		for _, r := range routes {
			assert.Equal(t, "a.example.com", r.Host)
			assert.Contains(t, r.Reason, reason, "each of its routes says why")
			assert.True(t, !r.Ready && r.Service == "" && r.Port == 0 && len(r.Addresses) == 0 && strings.HasPrefix(r.Path, "/"), rules)
		}
	}
	for spec, reason := range map[string]string{
		`{rules: [{` + to + `}]}`:                                                      "spec.hostnames is empty",
		`{hostnames: [a.example.com]}`:                                                 "spec.rules is empty",
		`{hostnames: [a.example.com], rules: []}`:                                      "spec.rules is empty",
		`{hostnames: [a.example.com], useDefaultGateways: All, rules: [{` + to + `}]}`: "spec.useDefaultGateways",
	} {
		assert.Contains(t, Uncarried(object(t, "shop", spec)), reason)
	}
	long := object(t, "shop", `{hostnames: [a.example.com], `+strings.Repeat("x", 900)+`: 1}`)
	assert.LessOrEqual(t, len(Uncarried(long)), 512)
}

func TestReferenceGrant(t *testing.T) {
	to := backendRef{"back", "api", 8080}
	from := func(group, kind, namespace string) string {
		return `from: [{group: ` + group + `, kind: ` + kind + `, namespace: ` + namespace + `}]`
	}
	shop := from("gateway.networking.k8s.io", "HTTPRoute", "shop")
	for _, c := range []struct {
		namespace, spec string
		want            bool
	}{
		{"back", `{` + shop + `, to: [{group: "", kind: Service}]}`, true},
		{"back", `{` + shop + `, to: [{group: "", kind: Secret}, {kind: Service, name: api}]}`, true},
		{"back", `{` + shop + `, to: [{kind: Service, name: other}]}`, false},
		{"back", `{` + shop + `, to: [{kind: Secret}]}`, false},
		{"back", `{` + shop + `, to: []}`, false},
		{"shop", `{` + shop + `, to: [{kind: Service}]}`, false},
		{"back", `{` + from("gateway.networking.k8s.io", "HTTPRoute", "other") + `, to: [{kind: Service}]}`, false},
		{"back", `{` + from("gateway.networking.k8s.io", "GRPCRoute", "shop") + `, to: [{kind: Service}]}`, false},
		{"back", `{` + from("other.example.com", "HTTPRoute", "shop") + `, to: [{kind: Service}]}`, false},
	} {
		assert.Equal(t, c.want, granted([]unstructured.Unstructured{*object(t, c.namespace, c.spec)}, "shop", to), c.spec)
	}
	assert.False(t, granted(nil, "shop", to))
}
