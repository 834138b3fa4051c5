package controlapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func soundRoute() controlapi.Route {
	return controlapi.Route{Host: "shop.example.com", Path: "/", PathType: "Prefix", TLS: true, Namespace: "shop", App: "web", Service: "web", Port: 80, Reason: "no pod is ready", Endpoint: "lb.example.com"}
}

func TestRoutes_RoundTrip(t *testing.T) {
	ca := newAuthority(t)
	want := controlapi.RoutesRequest{Routes: []controlapi.Route{soundRoute()}, Omitted: 2}
	b := &backend{putRoutes: func(agentID string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
		assert.Equal(t, "leaf", agentID)
		if len(req.Routes) > 0 {
			assert.Equal(t, want, req)
		}
		return controlapi.RoutesState{Digest: req.Digest()}, nil
	}}
	c := clientOf(t, ca, handlerOf(b, zerolog.Nop()))

	state, err := c.Routes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "of leaf", state.Digest)
	state, err = c.PutRoutes(t.Context(), want)
	require.NoError(t, err)
	assert.Equal(t, want.Digest(), state.Digest, "both ends make the same digest")
	assert.Len(t, state.Digest, 64)
	state, err = c.PutRoutes(t.Context(), controlapi.RoutesRequest{})
	require.NoError(t, err)
	assert.Empty(t, state.Digest)
}

func TestRoutes_Digest(t *testing.T) {
	one := controlapi.RoutesRequest{Routes: []controlapi.Route{soundRoute()}}
	other := controlapi.RoutesRequest{Routes: []controlapi.Route{soundRoute()}}
	assert.Equal(t, one.Digest(), other.Digest())
	other.Routes[0].Ready = true
	assert.NotEqual(t, one.Digest(), other.Digest())
	assert.NotEqual(t, one.Digest(), controlapi.RoutesRequest{Routes: one.Routes, Omitted: 1}.Digest())
}

// putRoutes sends a body as an agent with a certificate does.
func putRoutes(t testing.TB, h http.Handler, body string) *http.Response {
	t.Helper()
	return send(t, h, "/v1/agent/routes", body, func(r *http.Request) {
		asAgent(r)
		r.Method = http.MethodPut
	})
}

func TestRoutes_RefusesInvalid(t *testing.T) {
	h := handlerOf(&backend{}, zerolog.Nop())
	changed := func(change func(*controlapi.Route)) string {
		route := soundRoute()
		require.NoError(t, route.Fits())
		change(&route)
		assert.Error(t, route.Fits(), "the agent leaves it out: %+v", route)
		text, err := json.Marshal(controlapi.RoutesRequest{Routes: []controlapi.Route{route}})
		require.NoError(t, err)
		return string(text)
	}
	twice, err := json.Marshal(controlapi.RoutesRequest{Routes: []controlapi.Route{soundRoute(), soundRoute()}})
	require.NoError(t, err)
	many, err := json.Marshal(controlapi.RoutesRequest{Routes: slices.Repeat([]controlapi.Route{soundRoute()}, controlapi.MaxRoutes+1)})
	require.NoError(t, err)
	for name, c := range map[string]struct{ body, says string }{
		"the same twice":        {string(twice), "Service shop/web has shop.example.com/ (Prefix) twice"},
		"too many":              {string(many), "routes"},
		"a host in capitals":    {changed(func(r *controlapi.Route) { r.Host = "Shop" }), "host"},
		"a host with a newline": {changed(func(r *controlapi.Route) { r.Host = "shop\n" }), "host"},
		"a relative path":       {changed(func(r *controlapi.Route) { r.Path = "a" }), "path"},
		"a path type of ours":   {changed(func(r *controlapi.Route) { r.PathType = "Regex" }), "pathType"},
		"no port":               {changed(func(r *controlapi.Route) { r.Port = 0 }), "no port"},
		"no Service":            {changed(func(r *controlapi.Route) { r.Service = "" }), "no Service"},
		"a long host":           {changed(func(r *controlapi.Route) { r.Host = strings.Repeat("a.", 126) + "bb" }), "host"},
		"a long path":           {changed(func(r *controlapi.Route) { r.Path = "/" + strings.Repeat("é", 1024) }), "path"},
		"a long reason":         {changed(func(r *controlapi.Route) { r.Reason = strings.Repeat("x", 513) }), "reason"},
		"a port at an endpoint": {changed(func(r *controlapi.Route) { r.Endpoint = "192.0.2.1:443" }), "endpoint"},
		"a URL as an endpoint":  {changed(func(r *controlapi.Route) { r.Endpoint = "https://lb.example.com" }), "endpoint"},
		"no TLS at an endpoint": {changed(func(r *controlapi.Route) { r.Endpoint, r.TLS = "192.0.2.1", false }), "endpoint"},
		"a wildcard's endpoint": {changed(func(r *controlapi.Route) { r.Endpoint, r.Host = "192.0.2.1", "*.example.com" }), "endpoint"},
		"nothing":               {`{}`, "routes"},
	} {
		t.Run(name, func(t *testing.T) {
			e := problemOf(t, putRoutes(t, h, c.body))
			assert.Equal(t, problem.Invalid, e.Code, e.Error())
			assert.Contains(t, e.Error(), c.says)
			assert.NotEmpty(t, e.Fix)
		})
	}
	e := problemOf(t, putRoutes(t, h, `{"routes":"`+strings.Repeat("x", 1<<20)+`"}`))
	assert.Equal(t, problem.TooLarge, e.Code)
}

// What an agent may send by the limits it knows is within the handler's own limit.
func TestRoutes_AcceptsLargestSet(t *testing.T) {
	taken := 0
	h := handlerOf(&backend{putRoutes: func(_ string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
		taken = len(req.Routes)
		return controlapi.RoutesState{}, nil
	}}, zerolog.Nop())
	var req controlapi.RoutesRequest
	size := 0
	for i := range controlapi.MaxRoutes {
		route := soundRoute()
		route.Path = fmt.Sprintf("/%04d%s", i, strings.Repeat("p", 600))
		text, err := json.Marshal(route)
		require.NoError(t, err)
		if size += len(text) + 1; size > controlapi.MaxRoutesBytes {
			t.Fatal("the test's routes are larger than allowed")
		}
		req.Routes = append(req.Routes, route)
	}
	text, err := json.Marshal(req)
	require.NoError(t, err)
	resp := putRoutes(t, h, string(text))
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, controlapi.MaxRoutes, taken)
}

func FuzzRoutes(f *testing.F) {
	f.Add(`{"routes":[{"host":"shop.example.com","path":"/","pathType":"Prefix","tls":true,"namespace":"shop","app":"web","service":"web","port":80,"ready":true}]}`)
	f.Add(`{"routes":[{"host":"*.a","path":"/x","pathType":"Exact","tls":false,"namespace":"n","service":"a","port":65535,"ready":false,"reason":"r"}],"omitted":3}`)
	f.Add(`{"routes":[{"host":"a.b","path":"/","pathType":"Exact","tls":true,"namespace":"n","service":"a","port":1,"ready":true,"endpoint":"2001:db8::1"}]}`)
	f.Add(`{"routes":null}`)
	f.Add(`{"routes":[],"omitted":-1}`)
	h := handlerOf(&backend{putRoutes: func(_ string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
		seen := map[string]bool{}
		for _, r := range req.Routes {
			key := strings.Join([]string{r.Host, r.Path, r.PathType, r.Namespace, r.App, r.Service}, "\x00")
			if r.Host == "" || len(r.Host) > 253 || !strings.HasPrefix(r.Path, "/") || r.Service == "" || r.Port < 1 || seen[key] ||
				r.Endpoint != "" && (!r.TLS || !gatewaywire.IsEndpoint(r.Endpoint)) {
				panic("let through what the wire forbids")
			}
			seen[key] = true
		}
		return controlapi.RoutesState{Digest: req.Digest()}, nil
	}}, zerolog.Nop())
	f.Fuzz(func(t *testing.T, body string) {
		noServerError(t, putRoutes(t, h, body), body)
	})
}
