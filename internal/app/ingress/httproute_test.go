package ingress

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
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
	ofWeb, ofAPI := &httpRule{backends: []httpBackend{{to: web, weight: 1}}}, &httpRule{backends: []httpBackend{{to: api, weight: 1}}}
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
	router := &gatewayAPI{Router: &Router{}}
	first, second := router.routesAt(t, object(t, "shop", `{hostnames: [a], rules: [{matches: [{path: {type: RegularExpression, value: "/a+"}}]}]}`)),
		router.routesAt(t, object(t, "shop", `{hostnames: [b], rules: [{matches: [{path: {type: RegularExpression, value: "/a+"}}]}]}`))
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

// routesAt returns the routes of an HTTPRoute at its own hosts.
func (t *gatewayAPI) routesAt(test *testing.T, h *unstructured.Unstructured) []Route {
	test.Helper()
	return t.routesOfHTTPRoute(test.Context(), h, hostnamesOf(h), "", nil)
}

// filtered returns an HTTPRoute whose rule has a field.
func filtered(t *testing.T, rule string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "shop", `{hostnames: [a.example.com], rules: [{`+rule+`}]}`)
}

func TestHTTPRoute_Rules(t *testing.T) {
	h := filtered(t, `timeouts: {request: 1m30s, backendRequest: 450ms}, matches: [{path: {value: /a}}], filters: [
		{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-a, value: b}], add: [{name: X-C, value: d}], remove: [x-e]}},
		{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [server]}},
		{type: URLRewrite, urlRewrite: {hostname: in.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}},
		{type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}, percent: 5}},
		{type: RequestMirror, requestMirror: {backendRef: {name: copy, namespace: back, port: 80}, fraction: {numerator: 1, denominator: 1000}}}],
		backendRefs: [{name: web, port: 80, weight: 9}, {name: new, port: 81, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: a, value: b}]}}]},
			{name: off, port: 80, weight: 0}, {name: x, kind: ServiceImport, group: multicluster.x-k8s.io, port: 80}]`)
	matches, reason := matchesOf(h, compilePattern)
	require.Empty(t, reason)
	r := matches[0].rule
	assert.Equal(t, 500*time.Millisecond, r.within)
	assert.Equal(t, []string{"RequestHeaderModifier", "ResponseHeaderModifier", "URLRewrite", "RequestMirror", "RequestMirror"}, r.types)
	assert.Equal(t, &gateway.Filters{
		Request:  gateway.Modifier{Set: []gateway.Header{{Name: "X-A", Value: "b"}}, Add: []gateway.Header{{Name: "X-C", Value: "d"}}, Remove: []string{"X-E"}},
		Response: gateway.Modifier{Remove: []string{"Server"}}, Host: "in.example.com", Path: &gateway.PathChange{Value: "/b", Prefix: true},
	}, r.filters)
	assert.Equal(t, []httpMirror{{backendRef{"shop", "copy", 80}, 5, 100}, {backendRef{"back", "copy", 80}, 1, 1000}}, r.mirrors)
	require.Len(t, r.backends, 4)
	weights := make([]int, len(r.backends))
	for i, b := range r.backends {
		weights[i] = b.weight
	}
	assert.Equal(t, []int{9, 1, 0, 1}, weights)
	assert.Equal(t, []gateway.Header{{Name: "A", Value: "b"}}, r.backends[1].filters.Response.Set)
	assert.Contains(t, r.backends[3].missing, "is not a Service")

	matches, reason = matchesOf(filtered(t, `filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: b.example.com, port: 8443, statusCode: 301, path: {type: ReplaceFullPath, replaceFullPath: /}}}]`), compilePattern)
	require.Empty(t, reason)
	assert.Equal(t, &gateway.Redirect{Scheme: "https", Host: "b.example.com", Port: 8443, Status: 301, Path: &gateway.PathChange{Value: "/"}}, matches[0].rule.filters.Redirect)
	routes := (&gatewayAPI{Router: &Router{}}).routesAt(t, filtered(t, `filters: [{type: RequestRedirect, requestRedirect: {}}]`))
	require.Len(t, routes, 1)
	assert.True(t, routes[0].Ready && routes[0].Port == 0 && routes[0].Filters.Redirect.Status == 302)

	routes = (&gatewayAPI{Router: &Router{}}).routesAt(t, filtered(t, `backendRefs: []`))
	require.Len(t, routes, 1)
	assert.True(t, !routes[0].Ready && routes[0].Backends != nil && len(routes[0].Backends) == 0, "its requests get 500, as the Gateway API says")
}

func TestHTTPRoute_Timeouts(t *testing.T) {
	for timeouts, want := range map[string]time.Duration{
		`{}`: 0, `{request: 90s}`: 90 * time.Second, `{request: 10s, backendRequest: 1500ms}`: 1500 * time.Millisecond, `{backendRequest: 1ms}`: 100 * time.Millisecond,
		`{request: 0s}`: time.Hour, `{request: 0s, backendRequest: 2s}`: 2 * time.Second, `{request: 1h}`: time.Hour, `{request: 12s1ms}`: 13 * time.Second,
	} {
		matches, reason := matchesOf(filtered(t, `timeouts: `+timeouts), compilePattern)
		assert.Empty(t, reason, timeouts)
		assert.Equal(t, want, matches[0].rule.within, timeouts)
	}
	for _, timeouts := range []string{`{request: 2h}`, `{request: 1.5s}`, `{request: -1s}`, `{request: ""}`, `{request: 1us}`, `{backendRequest: "99999h99999h"}`, `{idle: 1s}`} {
		assert.Contains(t, Uncarried(filtered(t, `timeouts: `+timeouts)), "spec.rules[0].timeouts.", timeouts)
	}
}

// TestHTTPRoute_RejectsFilters has filters that would change what the gateway says, lead elsewhere,
// or mean more than the gateway does.
func TestHTTPRoute_RejectsFilters(t *testing.T) {
	header := func(kind, change string) string {
		return `type: ` + kind + `HeaderModifier, ` + strings.ToLower(kind) + `HeaderModifier: {` + change + `}`
	}
	redirect := func(fields string) string { return `type: RequestRedirect, requestRedirect: {` + fields + `}` }
	rewrite := func(kind, path string) string {
		return `type: URLRewrite, urlRewrite: {path: {type: ` + kind + `, ` + strings.ToLower(kind[:1]) + kind[1:] + `: "` + path + `"}}`
	}
	for filter, reason := range map[string]string{
		header("Request", `set: [{name: X-Forwarded-User, value: admin}]`):                  "set[0].name is X-Forwarded-User",
		header("Request", `add: [{name: x_forwarded_for, value: 1.2.3.4}]`):                 "add[0].name is x_forwarded_for",
		header("Request", `remove: [X-Real-IP]`):                                            "remove[0] is X-Real-IP",
		header("Request", `set: [{name: Connection, value: close}]`):                        "set[0].name is Connection",
		header("Request", `set: [{name: transfer-encoding, value: chunked}]`):               "set[0].name is transfer-encoding",
		header("Request", `set: [{name: host, value: evil.example.com}]`):                   "set[0].name is host",
		header("Request", `set: [{name: "a\nb", value: c}]`):                                "set[0].name is not valid",
		header("Request", `set: [{name: a, value: "b\r\nc: d"}]`):                           "set[0].value is not valid",
		header("Request", `remove: [""]`):                                                   "remove[0] is not valid",
		header("Request", `replace: [{name: a, value: b}]`):                                 "requestHeaderModifier.replace",
		header("Response", `set: [{name: Pipeops-Failed, value: no-route}]`):                "set[0].name is Pipeops-Failed",
		header("Response", `set: [{name: Content-Length, value: "1"}]`):                     "set[0].name is Content-Length",
		redirect(`scheme: javascript`):                                                      "scheme is neither http nor https",
		redirect(`hostname: "evil.example.com/x"`):                                          "hostname is not a name in DNS",
		redirect(`port: 70000`):                                                             "port is not a port",
		redirect(`statusCode: 200`):                                                         "statusCode is not one of a redirect",
		redirect(`fragment: x`):                                                             "requestRedirect.fragment",
		redirect(`path: {type: ReplaceFullPath, replaceFullPath: "//evil.example.com"}`):    "replaceFullPath is not a path",
		rewrite("ReplaceFullPath", "/a/../b"):                                               "replaceFullPath is not a path",
		rewrite("ReplaceFullPath", "/a/.."):                                                 "replaceFullPath is not a path",
		rewrite("ReplacePrefixMatch", "//evil"):                                             "replacePrefixMatch is not a path",
		rewrite("ReplacePrefixMatch", "/a%2e"):                                              "replacePrefixMatch is not a path",
		rewrite("ReplacePrefixMatch", "/a?b"):                                               "replacePrefixMatch is not a path",
		rewrite("ReplacePrefixMatch", "a"):                                                  "replacePrefixMatch is not a path",
		rewrite("ReplaceSuffix", "/a"):                                                      "path.type is ReplaceSuffix",
		`type: URLRewrite, urlRewrite: {query: a}`:                                          "urlRewrite.query",
		`type: RequestMirror, requestMirror: {backendRef: {name: a}}`:                       "backendRef.port is missing",
		`type: RequestMirror, requestMirror: {backendRef: {name: a, kind: Pod, port: 80}}`:  "backendRef is not a Service",
		`type: ExtensionRef, extensionRef: {group: a, kind: b, name: c}`:                    "type is ExtensionRef",
		`type: CORS, cors: {allowOrigins: ["*"]}`:                                           "type is CORS",
		`type: RequestRedirect, requestRedirect: {}, urlRewrite: {hostname: b.example.com}`: "filters[0].urlRewrite",
	} {
		assert.Contains(t, Uncarried(filtered(t, `filters: [{`+filter+`}]`)), reason, filter)
	}
	const to = `backendRefs: [{name: web, port: 80}]`
	for rule, reason := range map[string]string{
		to + `, filters: [{type: RequestRedirect, requestRedirect: {}}]`:                                                                                                          "redirects and has backends",
		`filters: [{type: RequestRedirect, requestRedirect: {}}, {` + rewrite("ReplaceFullPath", "/a") + `}]`:                                                                     "both RequestRedirect and URLRewrite",
		`matches: [{path: {type: Exact, value: /a}}], filters: [{` + rewrite("ReplacePrefixMatch", "/b") + `}]`:                                                                   "spec.rules[0] has ReplacePrefixMatch",
		`matches: [{path: {type: RegularExpression, value: /a}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]`: "spec.rules[0] has ReplacePrefixMatch",
		`backendRefs: [{name: web, port: 80, filters: [{` + rewrite("ReplaceFullPath", "/b") + `}]}]`:                                                                             "backendRefs[0].filters[0].type is URLRewrite",
	} {
		assert.Contains(t, Uncarried(filtered(t, rule)), reason, rule)
	}
}

// FuzzHTTPRoute: what an HTTPRoute says never ends the agent, and a route that is served has no
// header of the gateway's own.
func FuzzHTTPRoute(f *testing.F) {
	f.Add(`{"hostnames": ["a"], "rules": [{"matches": [{"path": {"type": "RegularExpression", "value": "/a+"}}], "filters": [{"type": "URLRewrite", "urlRewrite": {"path": {}}}]}]}`)
	f.Add(`{"hostnames": ["a"], "rules": [{"timeouts": {"request": "1s"}, "backendRefs": [{"weight": -1, "port": 1e99, "filters": [{}]}]}]}`)
	f.Fuzz(func(t *testing.T, spec string) {
		o := map[string]any{}
		if yaml.Unmarshal([]byte(spec), &o) != nil {
			return
		}
		h := &unstructured.Unstructured{Object: map[string]any{"spec": o}}
		matches, reason := matchesOf(h, compilePattern)
		if len(matches) == 0 || len(reason) > 512 {
			t.Fatalf("%d matches, %q", len(matches), reason)
		}
		for _, m := range matches {
			if reason != "" || m.rule.filters == nil {
				continue
			}
			for _, h := range m.rule.filters.Request.Set {
				if gatewaywire.Reserved(h.Name) {
					t.Fatal(h.Name)
				}
			}
		}
	})
}

// Accepting a part of a route would send requests where its author does not expect them.
func TestHTTPRoute_RejectedAsWhole(t *testing.T) {
	const to = `backendRefs: [{name: web, port: 80}]`
	for rules, reason := range map[string]string{
		`{` + to + `, fieldOfTomorrow: true}`:                                      "spec.rules[0].fieldOfTomorrow",
		`{` + to + `, matches: [{path: {type: Exact, value: a}}]}`:                 "spec.rules[0].matches[0].path.value",
		`{backendRefs: [{name: web}]}`:                                             "spec.rules[0].backendRefs[0].port",
		`{backendRefs: [{name: web, port: 70000}]}`:                                "spec.rules[0].backendRefs[0].port",
		`{backendRefs: [{name: web, port: 80, filters: [{type: RequestMirror}]}]}`: "spec.rules[0].backendRefs[0].filters",
		`{` + to + `, sessionPersistence: {sessionName: a}}`:                       "spec.rules[0].sessionPersistence",
		`{` + to + `}, {` + to + `, retry: {attempts: 2}}`:                         "spec.rules[1].retry",
	} {
		h := object(t, "shop", `{hostnames: [a.example.com], rules: [`+rules+`]}`)
		assert.Contains(t, Uncarried(h), reason, rules)
		assert.Contains(t, Uncarried(h), "HTTPRoute site is not served: ", rules)
		routes := (&gatewayAPI{Router: &Router{}}).routesAt(t, h)
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
