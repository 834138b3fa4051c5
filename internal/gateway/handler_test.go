package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/memnet"
)

// backend is a Service that answers with its name.
func backend(t *testing.T, name string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// start serves a handler, and returns its URL.
func start(t *testing.T, h *gateway.Handler) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	await.Background(t, "the handler", func(ctx context.Context) error { return h.Serve(ctx, ln, time.Second) })
	return "http://" + ln.Addr().String()
}

// ask returns what a host and path answer, or why there is no answer. The path is sent as it is.
func ask(t *testing.T, url, host, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Host, r.URL.Opaque = host, path
	if strings.HasPrefix(path, "//") {
		r.URL.Opaque, r.URL.Path = "", path
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if word := resp.Header.Get(gatewaywire.HeaderFailed); word != "" {
		return word
	}
	return string(text)
}

// TestGateway_AmbiguousPath: a path that a Service may take for one that is not public, or is
// another Service's, is refused. All others go on as they came.
func TestGateway_AmbiguousPath(t *testing.T) {
	h := gateway.NewHandler(nil, zerolog.Nop())
	url := start(t, h)
	h.Set([]gateway.Route{
		{Host: "part.example.org", Path: "/public", PathType: "Prefix", Addresses: []string{backend(t, "public")}},
		{Host: "two.example.org", Path: "/", PathType: "Prefix", Addresses: []string{backend(t, "public")}},
		{Host: "two.example.org", Path: "/admin", PathType: "Prefix", Addresses: []string{backend(t, "admin")}},
		{Host: "all.example.org", Path: "/", PathType: "Prefix", Addresses: []string{backend(t, "public")}},
	})
	for path, want := range map[string]string{
		"/public/../admin": "ambiguous", "/public/%2e%2e/admin": "ambiguous", "/public/..%2fadmin": "ambiguous", "/public%2f..%2fadmin": "ambiguous",
		"/public/..;/admin": "ambiguous", "/public/.%2e;x=1/admin": "ambiguous", `/public/..\admin`: "ambiguous", "/public/..%5Cadmin": "ambiguous",
		"/public/%252e%252e/admin": "ambiguous", "/public/..%252fadmin": "ambiguous", "/public/a/../../admin": "ambiguous", "/public%2fadmin": "ambiguous",
		// By some of the rules alone, these lead out of what is public.
		"/public/../admin/..;/public/x": "ambiguous", `/public/../admin/..\public/x`: "ambiguous", "/public/../admin/..%2fpublic/x": "ambiguous",
		"/public/..;/admin/..%3b/public/x": "ambiguous", "/public/../admin/%2e%2e/public/x": "ambiguous", "/public/%25zz/%252e%252e/%252e%252e/admin": "ambiguous",
		"/public/x//../y": "public", "/public/a/..;/b": "public",
		"/public/": "public", "/public/a%2Fb": "public", "/public/a/../b": "public", "/publ%69c/a": "public", "/public/a;v=1": "public",
		"/public//a": "public", "/public/100%25": "public", "/public/.well-known": "public",
	} {
		assert.Equal(t, want, ask(t, url, "part.example.org", path), path)
		assert.Equal(t, "public", ask(t, url, "all.example.org", path), path)
	}
	for path, want := range map[string]string{
		"/x/../admin": "ambiguous", "//admin": "ambiguous", "/%61dmin": "admin", "/admin;x/y": "ambiguous", `/\admin`: "ambiguous", "/x%2fadmin": "public",
		"/admin/../x": "ambiguous", "/admin/a/../b": "admin", "/./admin": "ambiguous", "/x/./y": "public", "/%2561dmin": "ambiguous",
	} {
		assert.Equal(t, want, ask(t, url, "two.example.org", path), path)
	}
}

// Paths match as the rules of an Ingress say.
func TestGateway_Routes(t *testing.T) {
	h := gateway.NewHandler(nil, zerolog.Nop())
	url := start(t, h)
	old := time.Unix(1, 0)
	h.Set([]gateway.Route{
		{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{backend(t, "root")}, Created: old},
		{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{backend(t, "later")}, Created: old.Add(time.Hour)},
		{Host: "www.example.org", Path: "/api", PathType: "Prefix", Addresses: []string{backend(t, "api")}},
		{Host: "www.example.org", Path: "/api/v2/", PathType: "ImplementationSpecific", Addresses: []string{backend(t, "v2")}},
		{Host: "www.example.org", Path: "/api", PathType: "Exact", Addresses: []string{backend(t, "exact")}},
		{Host: "*.example.org", Path: "/wild", PathType: "Prefix", Addresses: []string{backend(t, "wild")}},
		{Host: "empty.example.org", Path: "/", PathType: "Prefix"},
	})
	for _, c := range []struct{ host, path, want string }{
		{"www.example.org", "/", "root"}, {"WWW.example.org:443", "/x", "root"}, {"www.example.org.", "/apiary", "root"},
		{"www.example.org", "/api", "exact"}, {"www.example.org", "/api/", "api"}, {"www.example.org", "/api/v1", "api"},
		{"www.example.org", "/api/v2", "v2"}, {"www.example.org", "/api/v2/x", "v2"}, {"www.example.org", "/wild", "root"},
		{"any.example.org", "/wild/x", "wild"}, {"any.example.org", "/", gatewaywire.NoRoute}, {"a.any.example.org", "/wild", gatewaywire.NoRoute},
		{"empty.example.org", "/", gatewaywire.NotReady}, {"127.0.0.1", "/", gatewaywire.NoRoute}, {"kubernetes.default.svc", "/", gatewaywire.NoRoute},
	} {
		assert.Equal(t, c.want, ask(t, url, c.host, c.path), c.host+c.path)
	}
	h.Set(nil)
	assert.Equal(t, gatewaywire.NoRoute, ask(t, url, "www.example.org", "/"), "they are withdrawn")
}

// A pod that has ended refuses connections until the cluster leads elsewhere.
func TestGateway_TriesOtherPods(t *testing.T) {
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Set([]gateway.Route{{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{freeport.Address(t), backend(t, "alive")}}})
	url := start(t, h)
	for range 10 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(strings.NewReader("text")))
		require.NoError(t, err)
		r.Host = "www.example.org"
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
}

// How long a backend may take to begin its answer is the route's to say.
func TestGateway_AnswerTimeout(t *testing.T) {
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(slow.Close)
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Set([]gateway.Route{{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{slow.Listener.Addr().String()}, Within: time.Second}})
	assert.Equal(t, gatewaywire.TimedOut, ask(t, start(t, h), "www.example.org", "/"))
}

// net/http would panic where the connection is used again, and end the agent.
func TestGateway_ClosesAfterEarlyResponse(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/whole" {
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close")
	}))
	t.Cleanup(app.Close)
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Set([]gateway.Route{{Host: "www.example.org", Path: "/", PathType: "Prefix", Addresses: []string{app.Listener.Addr().String()}}})
	address := strings.TrimPrefix(start(t, h), "http://")
	for _, c := range []struct {
		host, path string
		closes     bool
	}{{"www.example.org", "/early", true}, {"unknown.example.org", "/", true}, {"www.example.org", "/whole", false}} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		begin := "POST " + c.path + " HTTP/1.1\r\nHost: " + c.host + "\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ntext\r\n"
		if !c.closes {
			begin += "0\r\n\r\n"
		}
		_, err = io.WriteString(conn, begin)
		require.NoError(t, err)
		answers := bufio.NewReader(conn)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err, c.path)
		assert.Equal(t, c.closes, resp.Close, c.path)
		if !c.closes {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_, _ = io.WriteString(conn, "0\r\n\r\n"+begin) // the next request
		_, err = http.ReadResponse(answers, nil)
		require.Error(t, err, c.path)
	}
}

// The first request may come later than the gateway keeps idle connections.
func TestGateway_StreamMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := memnet.New()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		h := gateway.NewHandler(nil, zerolog.Nop())
		h.Set(nil)
		go func() { done <- h.Serve(ctx, ln, time.Second) }()
		conn, err := ln.Dial(t.Context(), "", "")
		require.NoError(t, err)
		time.Sleep(time.Minute) // of the bubble
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: www.example.org\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, gatewaywire.NoRoute, resp.Header.Get(gatewaywire.HeaderFailed))
		_, _ = resp.Body.Close(), conn.Close()
		cancel()
		require.NoError(t, <-done)
	})
}

// Until the routes are known, requests wait for them: for some seconds, and then they get 503.
func TestGateway_WaitsForRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := gateway.NewHandler(nil, zerolog.Nop())
		ask := func() <-chan *httptest.ResponseRecorder {
			got := make(chan *httptest.ResponseRecorder, 1)
			go func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://www.example.org/", strings.NewReader("text")))
				got <- w
			}()
			return got
		}
		late := <-ask()
		assert.Equal(t, []any{503, gatewaywire.Starting}, []any{late.Code, late.Header().Get(gatewaywire.HeaderFailed)})
		early := ask()
		synctest.Wait()
		h.Set([]gateway.Route{{Host: "www.example.org", Path: "/", PathType: "Prefix"}})
		assert.Equal(t, gatewaywire.NotReady, (<-early).Header().Get(gatewaywire.HeaderFailed))
	})
}

// The gateway cannot choose another endpoint, and none is private.
func TestGateway_EndpointKey(t *testing.T) {
	balancer := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(balancer.Close)
	h := gateway.NewHandler(nil, zerolog.Nop())
	h.Endpoints = gateway.Endpoints{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Port: balancer.Listener.Addr().(*net.TCPAddr).Port}
	h.Set([]gateway.Route{
		{Host: "www.example.org", Path: "/", PathType: "Prefix", Endpoint: "127.0.0.1"},
		{Host: "tunnel.example.org", Path: "/", PathType: "Prefix"},
		{Host: "private.example.org", Path: "/", PathType: "Prefix", Endpoint: "10.0.0.1"},
	})
	url := start(t, h)
	key := func(host string) http.Header {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/", http.NoBody)
		require.NoError(t, err)
		r.Host = host
		r.Header.Set(gatewaywire.HeaderKeyWanted, "1")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.Header
	}
	assert.Equal(t, gatewaywire.KeyOf(balancer.Certificate()), key("www.example.org").Get(gatewaywire.HeaderKey))
	assert.Equal(t, gatewaywire.NoRoute, key("tunnel.example.org").Get(gatewaywire.HeaderFailed))
	assert.Equal(t, gatewaywire.NoRoute, key("other.example.org").Get(gatewaywire.HeaderFailed))
	assert.Contains(t, key("private.example.org").Get(gatewaywire.HeaderKeyReason), "not a public address")
}
