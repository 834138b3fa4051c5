package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
)

var web = traffic.App{Namespace: "production", Name: "web"}

// counted is a handler that serves the App web at a backend.
func counted(t *testing.T, backend http.HandlerFunc, change func(*gateway.Route)) (*gateway.Handler, string) {
	t.Helper()
	srv := httptest.NewServer(backend)
	t.Cleanup(srv.Close)
	h := gateway.NewHandler(nil, zerolog.Nop())
	r := gateway.Route{Host: "shop.example.com", Path: "/", Addresses: []string{srv.Listener.Addr().String()}, Namespace: web.Namespace, App: web.Name, AccessLog: true}
	if change != nil {
		change(&r)
	}
	h.Set([]gateway.Route{r})
	return h, start(t, h)
}

func figures(h *gateway.Handler) runnerapi.HostTraffic {
	got := traffic.Report(h.Traffic.Values(), web, traffic.Hour, h.Traffic.Now())
	if len(got.Hosts) == 0 {
		return runnerapi.HostTraffic{}
	}
	return got.Hosts[0]
}

func accessLog(t *testing.T, h *gateway.Handler) (lines []runnerapi.LogLine) {
	t.Helper()
	require.NoError(t, h.Traffic.Logs.Read(t.Context(), web, "pod-1", runnerapi.LogOptions{Tail: -1}, func(l runnerapi.LogLine) error {
		lines = append(lines, l)
		return nil
	}))
	return lines
}

func send(t *testing.T, method, url, host, path, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Host = host
	for name, values := range header {
		r.Header[name] = values
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

// TestHandler_CountsRequests: what the backend answers, and what the agent answers itself.
func TestHandler_CountsRequests(t *testing.T) {
	h, url := counted(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Length", "10")
		_, _ = fmt.Fprintf(w, "%10d", n)
	}, func(r *gateway.Route) { r.Visitors.MaxBodyBytes = 5 })
	visitor := http.Header{"X-Real-Ip": {"203.0.113.7"}, "X-Request-Id": {"id-1"}, "User-Agent": {"browser"}}
	send(t, http.MethodPost, url, "SHOP.example.com", "/cart?token=secret", "hello", visitor)
	send(t, http.MethodGet, url, "shop.example.com", "/broken", "", visitor)
	send(t, http.MethodPost, url, "shop.example.com", "/", "too much", visitor)
	for i := range 100 { // no App is there
		send(t, http.MethodGet, url, fmt.Sprintf("h%d.example.com", i), "/", "", visitor)
	}
	send(t, http.MethodHead, url, "shop.example.com", "/", "", http.Header{"X-Real-Ip": {"127.0.0.1"}, "User-Agent": {"pipeops-gateway-check"}})
	await.Until(t, "all are counted", func() bool { return figures(h).Requests == 3 })
	got := figures(h)
	assert.Equal(t, runnerapi.StatusCounts{Successful: 1, ClientError: 1, ServerError: 1}, got.Statuses)
	assert.Equal(t, map[string]int64{"too-large": 1}, got.Failed)
	assert.Equal(t, []int64{1, 5, 10}, []int64{got.Errors, got.Received, got.Sent})
	assert.NotNil(t, got.Latency)
	assert.Len(t, h.Traffic.Values(), 1)

	lines := accessLog(t, h)
	require.Len(t, lines, 3)
	first := *lines[0].Request
	assert.Positive(t, first.DurationMillis)
	first.DurationMillis = 0
	assert.Equal(t, runnerapi.AccessEntry{
		RequestID: "id-1", Host: "SHOP.example.com", Method: "POST", Path: "/cart", Status: 200, Received: 5, Sent: 10, Address: "203.0.113.7", UserAgent: "browser",
	}, first)
	assert.Equal(t, "too-large", lines[2].Request.Failed)
	assert.NotContains(t, fmt.Sprint(lines), "secret")
}

// TestHandler_CountsUnreached: no pod accepts connections, and one does not answer in time.
func TestHandler_CountsUnreached(t *testing.T) {
	h, url := counted(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, func(r *gateway.Route) { r.Within = 50 * time.Millisecond })
	assert.Equal(t, "timed-out", ask(t, url, "shop.example.com", "/"))
	await.Until(t, "it is counted", func() bool { return figures(h).Failed["timed-out"] == 1 })
	assert.GreaterOrEqual(t, figures(h).Latency.P50, 30.0)
	h.Set([]gateway.Route{{Host: "shop.example.com", Path: "/", Addresses: []string{freeport.Address(t)}, Namespace: web.Namespace, App: web.Name}})
	assert.Equal(t, "not-ready", ask(t, url, "shop.example.com", "/"))
	await.Until(t, "it is counted", func() bool { return figures(h).Failed["not-ready"] == 1 })
	assert.Equal(t, int64(2), figures(h).Requests, "counts stay when the routes change")
	assert.Empty(t, accessLog(t, h), "the log is gone with the wish for it")
}

// TestHandler_CountsStreams when they begin, and their bytes when they end.
func TestHandler_CountsStreams(t *testing.T) {
	end := make(chan struct{})
	h, url := counted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			_, _ = io.WriteString(w, "hello")
			_ = http.NewResponseController(w).Flush()
			<-end
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.CopyN(conn, conn, 7)
	}, nil)
	done := make(chan struct{})
	await.Background(t, "a stream", func(ctx context.Context) error {
		defer close(done)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		r.Host = "shop.example.com"
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	await.Until(t, "the stream is counted", func() bool { return figures(h).Statuses.Successful == 1 })
	assert.Zero(t, figures(h).Sent)
	close(end)
	<-done
	await.Until(t, "its bytes are counted", func() bool { return figures(h).Sent == 5 })

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: shop.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	from := bufio.NewReader(conn)
	resp, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	await.Until(t, "the WebSocket is counted", func() bool { return figures(h).Statuses.Informational == 1 })
	_, err = io.WriteString(conn, "message")
	require.NoError(t, err)
	_, err = io.ReadFull(from, make([]byte, len("message")))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	await.Until(t, "its bytes are counted", func() bool { return figures(h).Received == 7 && figures(h).Sent == 12 })
	assert.Equal(t, int64(2), figures(h).Requests)
	await.Until(t, "both are logged", func() bool { return len(accessLog(t, h)) == 2 })
}

// BenchmarkHandler compares requests that are counted and logged with those that are not.
func BenchmarkHandler(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	b.Cleanup(srv.Close)
	for name, route := range map[string]gateway.Route{
		"plain":   {},
		"counted": {Namespace: web.Namespace, App: web.Name},
		"logged":  {Namespace: web.Namespace, App: web.Name, AccessLog: true},
	} {
		b.Run(name, func(b *testing.B) {
			h := gateway.NewHandler(nil, zerolog.Nop())
			route.Host, route.Path, route.Addresses = "shop.example.com", "/", []string{srv.Listener.Addr().String()}
			h.Set([]gateway.Route{route})
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://shop.example.com/", http.NoBody)
			r.Header.Set("X-Real-Ip", "203.0.113.7")
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
