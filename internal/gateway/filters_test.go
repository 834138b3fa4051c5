package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// seen is a request as a backend got it.
type seen struct {
	Target, Host, Body string
	Header             http.Header
}

// echo is a Service that answers with the request.
func echo(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header()["X-Gone"], w.Header()["X-Kept"] = []string{"1"}, []string{"1"}
		w.Header().Set(gatewaywire.HeaderFailed, "no-route")
		_ = json.NewEncoder(w).Encode(seen{r.RequestURI, r.Host, string(body), r.Header})
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// visitTo sends a request as the control plane's gateway does, and follows no redirect.
func visitTo(t *testing.T, url, method, host, target string, body io.Reader, header http.Header) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	r.Host, r.URL.Opaque = host, target
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestGateway_Filters(t *testing.T) {
	app := echo(t)
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Set([]gateway.Route{
		{
			Host: "a.example.org", Path: "/api", PathType: "Prefix", Backends: []gateway.Backend{{Addresses: []string{app}, Weight: 1, Filters: &gateway.Filters{
				Request: gateway.Modifier{Add: []gateway.Header{{Name: "X-Add", Value: "backend"}}},
			}}},
			Filters: &gateway.Filters{
				Request:  gateway.Modifier{Set: []gateway.Header{{Name: "X-Set", Value: "new"}}, Add: []gateway.Header{{Name: "X-Add", Value: "more"}}, Remove: []string{"X-Gone"}},
				Response: gateway.Modifier{Set: []gateway.Header{{Name: "X-Kept", Value: "2"}}, Add: []gateway.Header{{Name: "X-Add", Value: "1"}}, Remove: []string{"X-Gone"}},
				Host:     "inner.example.org", Path: &gateway.PathChange{Value: "/v2", Prefix: true},
			},
		},
		{Host: "a.example.org", Path: "/plain", PathType: "Prefix", Addresses: []string{app}},
		{Host: "all.example.org", Path: "/", PathType: "Prefix", Addresses: []string{app}, Filters: &gateway.Filters{Path: &gateway.PathChange{Value: "/in", Prefix: true}}},
		{Host: "full.example.org", Path: "/", PathType: "Prefix", Addresses: []string{app}, Filters: &gateway.Filters{Path: &gateway.PathChange{Value: "/one"}}},
	})
	url := start(t, h)
	read := func(resp *http.Response) (s seen) {
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&s))
		return s
	}
	resp := visitTo(t, url, http.MethodPost, "a.example.org", "/api/x%2Fy?q=%20", strings.NewReader("text"),
		http.Header{"X-Set": {"old", "older"}, "X-Add": {"one"}, "X-Gone": {"1"}, "X-Forwarded-For": {"192.0.2.1"}})
	got := read(resp)
	assert.Equal(t, []string{"/v2/x%2Fy?q=%20", "inner.example.org", "text"}, []string{got.Target, got.Host, got.Body})
	assert.Equal(t, []string{"new"}, got.Header["X-Set"])
	assert.Equal(t, []string{"one", "more", "backend"}, got.Header["X-Add"])
	assert.NotContains(t, got.Header, "X-Gone")
	assert.Equal(t, []string{"192.0.2.1"}, got.Header["X-Forwarded-For"])
	assert.Equal(t, []string{"2"}, resp.Header["X-Kept"])
	assert.Equal(t, []string{"1"}, resp.Header["X-Add"])
	assert.NotContains(t, resp.Header, "X-Gone")
	assert.Empty(t, resp.Header.Get(gatewaywire.HeaderFailed))

	for target, want := range map[string]string{"/a": "/in/a", "/": "/in/", "/a//b": "/in/a//b", "/a/../b": "/in/a/../b", "/?": "/in/?"} {
		assert.Equal(t, want, read(visitTo(t, url, http.MethodGet, "all.example.org", target, http.NoBody, nil)).Target, target)
	}
	assert.Equal(t, "/one?q", read(visitTo(t, url, http.MethodGet, "full.example.org", "/any/..%2f?q", http.NoBody, nil)).Target)
	assert.Equal(t, "/plain//x", read(visitTo(t, url, http.MethodGet, "a.example.org", "/plain//x", http.NoBody, nil)).Target)
	for _, target := range []string{"/../x", "/a/%2e%2e/..;/x", "/..%2fadmin"} {
		resp := visitTo(t, url, http.MethodGet, "all.example.org", target, http.NoBody, nil)
		assert.Equal(t, []any{http.StatusBadRequest, gatewaywire.Ambiguous}, []any{resp.StatusCode, resp.Header.Get(gatewaywire.HeaderFailed)}, target)
	}
}

func TestGateway_Redirects(t *testing.T) {
	whole, prefix := &gateway.PathChange{Value: "/new"}, &gateway.PathChange{Value: "/", Prefix: true}
	for name, c := range map[string]struct {
		gateway.Redirect
		host, target, proto, want string
	}{
		"host":                    {gateway.Redirect{Host: "b.example.org"}, "www.example.org", "/shop/x?q=1", "https", "https://b.example.org/shop/x?q=1"},
		"keeps the client's port": {gateway.Redirect{Host: "b.example.org"}, "www.example.org:8443", "/shop", "https", "https://b.example.org:8443/shop"},
		"scheme has its port":     {gateway.Redirect{Scheme: "http"}, "www.example.org:8443", "/shop", "https", "http://www.example.org/shop"},
		"port":                    {gateway.Redirect{Port: 9000}, "www.example.org", "/shop", "https", "https://www.example.org:9000/shop"},
		"known port":              {gateway.Redirect{Scheme: "https", Port: 443}, "www.example.org", "/shop", "http", "https://www.example.org/shop"},
		"scheme of the client":    {gateway.Redirect{Port: 80}, "www.example.org", "/shop", "http", "http://www.example.org/shop"},
		"no scheme of its own":    {gateway.Redirect{Port: 80}, "www.example.org", "/shop", "javascript", "https://www.example.org:80/shop"},
		"path":                    {gateway.Redirect{Path: whole}, "www.example.org", "/shop/x?q", "https", "https://www.example.org/new?q"},
		"prefix":                  {gateway.Redirect{Path: prefix}, "www.example.org", "/shop/x", "https", "https://www.example.org/x"},
		"no other host by a path": {gateway.Redirect{Path: prefix}, "www.example.org", "/shop//evil.example.com", "https", "https://www.example.org/evil.example.com"},
		"escapes":                 {gateway.Redirect{}, "www.example.org", `/shop/"<x>`, "https", "https://www.example.org/shop/%22%3Cx%3E"},
	} {
		t.Run(name, func(t *testing.T) {
			h := gateway.NewHandler(nil, zerolog.Nop())
			c.Status = http.StatusFound
			h.Set([]gateway.Route{{Host: "www.example.org", Path: "/shop", PathType: "Prefix", Filters: &gateway.Filters{Redirect: &c.Redirect}}})
			resp := visitTo(t, start(t, h), http.MethodGet, c.host, c.target, http.NoBody, http.Header{"X-Forwarded-Proto": {c.proto}})
			assert.Equal(t, http.StatusFound, resp.StatusCode)
			assert.Equal(t, c.want, resp.Header.Get("Location"))
			assert.Empty(t, resp.Header.Get(gatewaywire.HeaderFailed))
		})
	}
}

func TestGateway_Weights(t *testing.T) {
	one, two := backend(t, "one"), backend(t, "two")
	h := gateway.NewHandler(nil, zerolog.Nop())
	to := func(host string, backends ...gateway.Backend) gateway.Route {
		return gateway.Route{Host: host, Path: "/", PathType: "Prefix", Backends: backends}
	}
	h.Set([]gateway.Route{
		to("split", gateway.Backend{Addresses: []string{one}, Weight: 9}, gateway.Backend{Addresses: []string{two}, Weight: 1}, gateway.Backend{Missing: true}),
		to("none", gateway.Backend{Addresses: []string{one}}), {Host: "zero", Path: "/", Backends: []gateway.Backend{}},
		to("half", gateway.Backend{Addresses: []string{one}, Weight: 1}, gateway.Backend{Missing: true, Weight: 1}),
		to("pending", gateway.Backend{Weight: 1}),
	})
	url := start(t, h)
	count := func(host string, n int) map[string]int {
		got := map[string]int{}
		for range n {
			got[ask(t, url, host, "/")]++
		}
		return got
	}
	split := count("split", 500)
	assert.Equal(t, 500, split["one"]+split["two"])
	assert.InDelta(t, 50, split["two"], 35) // five standard deviations
	half := count("half", 200)
	assert.Equal(t, 200, half["one"]+half[gatewaywire.NoBackend])
	assert.InDelta(t, 100, half["one"], 36)
	for host, want := range map[string]string{"none": gatewaywire.NoBackend, "zero": gatewaywire.NoBackend, "pending": gatewaywire.NotReady} {
		assert.Equal(t, map[string]int{want: 1}, count(host, 1), host)
	}
	resp := visitTo(t, url, http.MethodGet, "none", "/", http.NoBody, nil)
	assert.Equal(t, http.StatusInternalServerError, resp.StatusCode)
}

// A mirror gets what the backend gets. What it answers, and that it does not, changes nothing for
// the visitor.
func TestGateway_Mirrors(t *testing.T) {
	var mu sync.Mutex
	var copies []seen
	mirrored := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		copies = append(copies, seen{r.RequestURI, r.Host, string(body), r.Header})
		mu.Unlock()
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(mirrored.Close)
	hanging, hung := make(chan struct{}), atomic.Int64{}
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hung.Add(1)
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hanging) })
	taken := func() []seen {
		mu.Lock()
		defer mu.Unlock()
		return append([]seen(nil), copies...)
	}
	all := func(address string) gateway.Mirror {
		return gateway.Mirror{Addresses: []string{address}, Share: 100, Of: 100}
	}
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Set([]gateway.Route{{
		Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{echo(t)}, Filters: &gateway.Filters{
			Request: gateway.Modifier{Set: []gateway.Header{{Name: "X-Set", Value: "1"}}},
			Mirrors: []gateway.Mirror{all(mirrored.Listener.Addr().String()), all(slow.Listener.Addr().String()), {Of: 100}, {Addresses: []string{"127.0.0.1:1"}, Of: 100}},
		},
	}})
	url := start(t, h)
	post := func(body io.Reader) {
		t.Helper()
		resp := visitTo(t, url, http.MethodPost, "www.example.org", "/x?q", body, nil)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		_, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}
	for n, body := range []io.Reader{strings.NewReader("text"), http.NoBody, io.MultiReader(strings.NewReader("of no "), strings.NewReader("known length"))} {
		post(body)
		await.Until(t, "the copy is there", func() bool { return len(taken()) == n+1 })
	}
	got := taken()
	assert.Equal(t, []string{"text", "", "of no known length"}, []string{got[0].Body, got[1].Body, got[2].Body})
	assert.Equal(t, []string{"/x?q", "www.example.org", "1"}, []string{got[0].Target, got[0].Host, got[0].Header.Get("X-Set")})

	post(strings.NewReader(strings.Repeat("x", 1<<20)))
	post(io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20))))
	for range 100 {
		post(http.NoBody)
	}
	assert.LessOrEqual(t, hung.Load(), int64(64), "copies in progress are bounded")
	for _, s := range taken() {
		assert.Less(t, len(s.Body), 1<<10, "large bodies are not copied")
	}
	ended := make(chan struct{})
	go func() { h.Close(); close(ended) }()
	select {
	case <-ended: // though a mirror hangs
	case <-time.After(5 * time.Second):
		t.Error("Close waits for a mirror")
	}
	post(http.NoBody) // a request that is in progress meanwhile
}
