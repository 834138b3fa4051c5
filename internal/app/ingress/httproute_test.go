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
	matches, reason := matchesOf(h, compilePattern)
	assert.Empty(t, reason)
	web, api := backendRef{"shop", "web", 80}, backendRef{"back", "api", 8080}
	ofWeb, ofAPI := &httpRule{to: web}, &httpRule{to: api}
	assert.Equal(t, []httpMatch{
		{path: "/", pathType: "Prefix", rule: ofWeb}, {path: "/api", pathType: "Exact", rule: ofAPI}, {path: "/v2", pathType: "Prefix", rule: ofAPI},
	}, matches)
	assert.Equal(t, []string{"a.example.com", "*.b.example.com"}, hostnamesOf(h))
	assert.Equal(t, []string{"web", "back/api"}, []string{web.text("shop"), api.text("shop")})
}

func TestHTTPRoute_Matches(t *testing.T) {
	h := object(t, "shop", `{hostnames: [a.example.com], rules: [{backendRefs: [{name: web, port: 80}], matches: [
		{path: {value: /a}, method: POST, headers: [{name: x-env, value: canary}, {name: X-ENV, value: second}, {name: x-id, type: RegularExpression, value: "[0-9]+"}],
			queryParams: [{name: q, value: "1"}, {name: Q, type: Exact, value: "2"}]},
		{path: {type: RegularExpression, value: "/v[0-9]+/.*"}}]}]}`)
	matches, reason := matchesOf(h, compilePattern)
	require.Empty(t, reason)
	require.Len(t, matches, 2)
	assert.Equal(t, `POST, header X-Env="canary", header X-Id matches "[0-9]+", query q="1", query Q="2"`, matches[0].conditions.String())
	assert.Equal(t, []string{"/v[0-9]+/.*", "RegularExpression"}, []string{matches[1].path, matches[1].pathType})
	for path, want := range map[string]bool{"/v1/x": true, "/v12/": true, "/x/v1/x": false, "/v1": false} {
		assert.Equal(t, want, matches[1].pattern.MatchString(path), path)
	}
	router := &Router{}
	first, second := router.routesOfHTTPRoute(t.Context(), object(t, "shop", `{hostnames: [a], rules: [{matches: [{path: {type: RegularExpression, value: "/a+"}}]}]}`), nil),
		router.routesOfHTTPRoute(t.Context(), object(t, "shop", `{hostnames: [b], rules: [{matches: [{path: {type: RegularExpression, value: "/a+"}}]}]}`), nil)
	assert.Same(t, first[0].Pattern, second[0].Pattern, "it is compiled once")
}

// TestHTTPRoute_RejectsHostile has what would take the agent's processor or memory, or a header
// that is not one.
func TestHTTPRoute_RejectsHostile(t *testing.T) {
	many := func(n int, item string) string { return "[" + strings.Repeat(item+", ", n-1) + item + "]" }
	for matches, reason := range map[string]string{
		`[{path: {type: RegularExpression, value: "` + strings.Repeat("a", 10_000) + `"}}]`:    "matches[0].path.value has 10000 bytes",
		`[{path: {type: RegularExpression, value: "/(a{500}){2}b{500}"}}]`:                     "matches[0].path.value takes too long",
		`[{path: {type: RegularExpression, value: "/` + strings.Repeat("a{999}", 100) + `"}}]`: "matches[0].path.value takes too long",
		`[{path: {type: RegularExpression, value: "(a)\\1"}}]`:                                 "matches[0].path.value is not a regular expression",
		`[{path: {type: RegularExpression, value: "a)|(b"}}]`:                                  "matches[0].path.value is not a regular expression",
		many(65, `{path: {type: RegularExpression, value: /a}}`):                               "matches[64].path.value is one regular expression too many",
		many(1000, `{path: {value: /a}}`):                                                      "more matches than the 128",
		`[{headers: [{name: "a\nb", value: x}]}]`:                                              "matches[0].headers[0].name",
		`[{headers: [{name: "", value: x}]}]`:                                                  "matches[0].headers[0].name",
		`[{headers: [{name: host, value: x}]}]`:                                                "matches[0].headers[0].name",
		`[{headers: [{name: a, value: "(", type: RegularExpression}]}]`:                        "matches[0].headers[0].value is not a regular",
		`[{headers: [{name: a, value: x, type: Prefix}]}]`:                                     "matches[0].headers[0].type",
		`[{headers: [{name: a, value: x, invert: true}]}]`:                                     "matches[0].headers[0].invert",
		`[{queryParams: [{name: "", value: x}]}]`:                                              "matches[0].queryParams[0].name",
		`[{method: "GET x"}]`:                                                                  "matches[0].method",
		`[{path: {type: Glob, value: /a}}]`:                                                    "matches[0].path.type",
		`[{fieldOfTomorrow: 1}]`:                                                               "matches[0].fieldOfTomorrow",
	} {
		h := object(t, "shop", `{hostnames: [a.example.com], rules: [{backendRefs: [{name: web, port: 80}], matches: `+matches+`}]}`)
		found, why := matchesOf(h, compilePattern)
		assert.Contains(t, why, reason)
		assert.NotEmpty(t, found)
		assert.LessOrEqual(t, len(found), maxMatches)
	}
}

// Accepting a part of a route would send requests where its author does not expect them.
func TestHTTPRoute_RejectedAsWhole(t *testing.T) {
	const to = `backendRefs: [{name: web, port: 80}]`
	for rules, reason := range map[string]string{
		`{` + to + `, filters: [{type: RequestRedirect}]}`:                         "spec.rules[0].filters",
		`{` + to + `, timeouts: {request: 1s}}`:                                    "spec.rules[0].timeouts",
		`{` + to + `, fieldOfTomorrow: true}`:                                      "spec.rules[0].fieldOfTomorrow",
		`{` + to + `, matches: [{path: {type: Exact, value: a}}]}`:                 "spec.rules[0].matches[0].path.value",
		`{backendRefs: [{name: web, port: 80, weight: 9}, {name: new, port: 80}]}`: "has 2 backends",
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
