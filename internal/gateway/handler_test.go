package gateway_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/publicwire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Serve(ctx, ln, time.Second) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.Receive(t, done, "the handler to stop"))
	})
	return "http://" + ln.Addr().String()
}

// ask returns what a host and path answer, or why there is no answer.
func ask(t *testing.T, url, host string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if word := resp.Header.Get(publicwire.HeaderFailed); word != "" {
		return word
	}
	return string(text)
}

// TestOnlyRoutesLeadSomewhere, as the rules of an Ingress say.
func TestOnlyRoutesLeadSomewhere(t *testing.T) {
	h := gateway.NewHandler(zerolog.Nop())
	url := start(t, h)
	assert.Equal(t, publicwire.NoRoute, ask(t, url+"/", "www.example.org"), "there are no routes yet")
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
		{"any.example.org", "/wild/x", "wild"}, {"any.example.org", "/", publicwire.NoRoute}, {"a.any.example.org", "/wild", publicwire.NoRoute},
		{"empty.example.org", "/", publicwire.NotReady}, {"127.0.0.1", "/", publicwire.NoRoute}, {"kubernetes.default.svc", "/", publicwire.NoRoute},
	} {
		assert.Equal(t, c.want, ask(t, url+c.path, c.host), c.host+c.path)
	}
	h.Set(nil)
	assert.Equal(t, publicwire.NoRoute, ask(t, url+"/", "www.example.org"), "they are withdrawn")
}
