package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// protocols runs a test with visitors of HTTP/1.1 and HTTP/2, and of HTTP/3 if it is named.
func protocols(t *testing.T, w *world, test func(t *testing.T, c *http.Client), more ...string) {
	t.Helper()
	clients := map[string]func() *http.Client{
		"HTTP1": func() *http.Client { return w.client(false) }, "HTTP2": func() *http.Client { return w.client(true) }, "HTTP3": w.client3,
	}
	for _, name := range append([]string{"HTTP1", "HTTP2"}, more...) {
		t.Run(name, func(t *testing.T) { test(t, clients[name]()) })
	}
}

// begin sends a GET whose response may take its time, and returns how it ends.
func begin(t *testing.T, c *http.Client, path string) <-chan error {
	t.Helper()
	r, done := request(t, http.MethodGet, "https://"+host+path, nil), make(chan error, 1)
	go func() {
		resp, err := c.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	return done
}

func request(t *testing.T, method, url string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// TestProxy_KeepsRequest replaces only the headers about the client, which a client may forge.
func TestProxy_KeepsRequest(t *testing.T) {
	seen := make(chan *http.Request, 1)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(context.Background())
		w.Header().Set("Pipeops-Failed", "no-route") // a backend cannot speak in the agent's name
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "hello")
	}))
	protocols(t, w, func(t *testing.T, c *http.Client) {
		resp, body := do(t, c, request(t, http.MethodGet, "https://"+host+"/a%2Fb/../c?x=1;y=%zz&z", nil,
			"X-Forwarded-For", "203.0.113.9", "Forwarded", "for=203.0.113.9", "X-Real-Ip", "203.0.113.9", "X-Forwarded-Proto", "http",
			"X-Forwarded-Host", "evil.example", "Cf-Connecting-Ip", "203.0.113.9", "X-Request-Id", "forged", "X-Other", "kept", "Cookie", "c=3"))
		assert.Equal(t, http.StatusTeapot, resp.StatusCode)
		assert.Equal(t, "hello", body)
		assert.Equal(t, []string{"a=1", "b=2"}, resp.Header.Values("Set-Cookie"))
		r := await.Receive(t, seen, "the request")
		assert.Equal(t, "/a%2Fb/../c?x=1;y=%zz&z", r.RequestURI)
		assert.Equal(t, host, r.Host)
		for name, want := range map[string]string{
			"X-Forwarded-For": "127.0.0.1", "X-Real-Ip": "127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": host,
			"Forwarded": `for=127.0.0.1;host="` + host + `";proto=https`, "X-Other": "kept", "Cookie": "c=3", "Cf-Connecting-Ip": "",
		} {
			assert.Equal(t, want, strings.Join(r.Header.Values(name), "|"), name)
		}
		assert.Equal(t, resp.Header.Get("X-Request-Id"), r.Header.Get("X-Request-Id"))
		assert.NotEqual(t, "forged", r.Header.Get("X-Request-Id"))
		assert.NotEmpty(t, r.Header.Get("X-Request-Id"))
	})
}

// TestProxy_StreamsBodies measures the heap, which both ends and the client share here.
func TestProxy_StreamsBodies(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // so that there is little garbage
	var most atomic.Uint64
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(sum, heapMeter{&most}), r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.Header().Set("Sum", hex.EncodeToString(sum.Sum(nil)))
		_, _ = io.CopyN(io.MultiWriter(w, heapMeter{&most}), zeros{}, n)
	}))
	const size, mostHeap = 100 << 20, 32 << 20
	want := sha256.New()
	_, _ = io.CopyN(want, zeros{}, size)
	protocols(t, w, func(t *testing.T, c *http.Client) {
		resp, err := c.Do(request(t, http.MethodPost, "https://"+host+"/", io.LimitReader(zeros{}, size)))
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		assert.Equal(t, hex.EncodeToString(want.Sum(nil)), resp.Header.Get("Sum"))
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.EqualValues(t, size, n)
	})
	assert.Less(t, most.Load(), uint64(mostHeap))
	assert.NotZero(t, most.Load())
}

// heapMeter notes the most memory in use while bytes pass.
type heapMeter struct{ most *atomic.Uint64 }

func (m heapMeter) Write(p []byte) (int, error) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	m.most.Store(max(m.most.Load(), sample[0].Value.Uint64()))
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestProxy_FlushesEvents(t *testing.T) {
	next, left := make(chan string), make(chan struct{}, 2)
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { left <- struct{}{} }()
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-next:
				_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	protocols(t, w, func(t *testing.T, c *http.Client) {
		resp, err := c.Do(request(t, http.MethodGet, "https://"+host+"/", nil, "Accept", "text/event-stream"))
		require.NoError(t, err)
		// The App notices that the client left, before another one reads the next events.
		defer await.Receive(t, left, "the end of the App's handler")
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		for _, text := range []string{"one", "two"} {
			next <- text
			require.True(t, lines.Scan())
			assert.Equal(t, "data: "+text, lines.Text())
			require.True(t, lines.Scan())
		}
	}, "HTTP3")
}

func TestProxy_Expect100Continue(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Refuse") != "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	c := w.client(false)
	resp, body := do(t, c, request(t, http.MethodPut, "https://"+host+"/", strings.NewReader("text"), "Expect", "100-continue"))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "text", body)
	resp, _ = do(t, c, request(t, http.MethodPut, "https://"+host+"/", strings.NewReader("text"), "Expect", "100-continue", "Refuse", "yes"))
	assert.Equal(t, http.StatusForbidden, resp.StatusCode)
}

// TestProxy_ErrorPages has the page, or the problem, for each way to fail.
func TestProxy_ErrorPages(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
	}), func(c *gateway.Config) { c.Limits.Requests.PerHost = 1 })
	serves(t, w.store, "a2", time.Now(), "txt", "*.example.net")
	serves(t, w.store, "a3", time.Now(), "txt", "off.example.com")
	serves(t, w.store, "a4", time.Now().Add(-gateway.RoutesTTL), "txt", "unheard.example.com")
	require.NoError(t, w.table.Refresh(t.Context()))
	c := w.client(true)
	check := func(url string, status int, code, says string) {
		t.Helper()
		resp, body := do(t, c, request(t, http.MethodGet, url, nil))
		assert.Equal(t, status, resp.StatusCode)
		assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
		for _, part := range []string{code, says, resp.Header.Get("X-Request-Id")} {
			assert.Contains(t, body, part)
		}
		resp, body = do(t, c, request(t, http.MethodGet, url, nil, "Accept", "text/html,*/*"))
		assert.Equal(t, status, resp.StatusCode)
		assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
		assert.Contains(t, body, "request "+resp.Header.Get("X-Request-Id"))
	}
	check("https://a.example.net/", 404, "not_found", "not published at this path") // the agent has no such route
	check("https://"+host+"/abort", 502, "unavailable", "closed the connection")
	w.lead()
	check("https://"+host+"/", 503, "unavailable", "starting, or has stopped")
	gone := listen(t)
	require.NoError(t, gone.Close())
	w.lead(gone.Addr().String())
	check("https://"+host+"/", 503, "unavailable", "starting, or has stopped")
	w.disconnect()
	check("https://off.example.com/", 503, "unavailable", "not connected")
	for _, scheme := range []string{"http", "https"} {
		check(scheme+"://unheard.example.com/", 503, "unavailable", "not connected")
	}

	_, err := c.Do(request(t, http.MethodGet, "https://unknown.example.org/", nil))
	require.Error(t, err, "there is no certificate for a host that is not served")
	r := request(t, http.MethodGet, "https://"+host+"/", nil)
	r.Host = "unknown.example.org"
	resp, _ := do(t, c, r)
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestProxy_LimitPerHost(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	w := newWorld(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			entered <- struct{}{}
			<-leave
		}
	}), func(c *gateway.Config) { c.Limits.Requests.PerHost = 2 })
	c := w.client(true)
	var done [2]<-chan error
	for i := range done {
		done[i] = begin(t, c, "/hang")
		await.Receive(t, entered, "the request")
	}
	resp, _ := do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	close(leave)
	for _, ended := range done {
		require.NoError(t, await.Receive(t, ended, "the response"))
	}
	resp, _ = do(t, c, request(t, http.MethodGet, "https://"+host+"/", nil))
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestProxy_RedirectsHTTP(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	c := w.client(false)
	resp, _ := do(t, c, request(t, http.MethodPost, "http://"+host+"/a?b=c", bytes.NewReader([]byte("x"))))
	assert.Equal(t, http.StatusPermanentRedirect, resp.StatusCode)
	_, port, _ := net.SplitHostPort(w.secure.String())
	assert.Equal(t, "https://"+host+":"+port+"/a?b=c", resp.Header.Get("Location"))
	resp, _ = do(t, c, request(t, http.MethodGet, "http://unknown.example.org/", nil))
	assert.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestProxy_Metrics(t *testing.T) {
	w := newWorld(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345") }))
	do(t, w.client(true), request(t, http.MethodGet, "https://"+host+"/", nil))
	await.Until(t, "the request is counted", func() bool {
		families, err := w.registry.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "test_gateway_response_bytes_total" && f.Metric[0].Label[0].GetValue() == "name of a1" {
				return f.Metric[0].Counter.GetValue() == 5
			}
		}
		return false
	})
}

// TestGateway_BadRequestProblem covers requests that net/http refuses, over TLS and without.
func TestGateway_BadRequestProblem(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	secure, err := (&tls.Dialer{Config: &tls.Config{RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12}}).
		DialContext(t.Context(), "tcp", w.secure.String())
	require.NoError(t, err)
	plain, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.plain.String())
	require.NoError(t, err)
	for _, conn := range []net.Conn{secure, plain} {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\nHost: "+host+"\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
		assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
		require.NoError(t, resp.Body.Close())
		require.NoError(t, conn.Close())
	}
}

// TestGateway_Check has what is missing until a visitor gets the App's answer, whatever that says.
func TestGateway_Check(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	require.NoError(t, w.gateway.Check(t.Context(), host, "/"))
	require.ErrorContains(t, w.gateway.Check(t.Context(), "unknown.example.org", "/"), "no valid certificate")
	gone := listen(t)
	require.NoError(t, gone.Close())
	w.lead(gone.Addr().String())
	require.ErrorContains(t, w.gateway.Check(t.Context(), host, "/"), "no pod of the App accepts connections")
	w.cut()
	w.disconnect()
	require.ErrorContains(t, w.gateway.Check(t.Context(), host, "/"), "not connected")
}
