package httpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// forged is what a handler may write as well.
const forged = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"

func handler(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/forged" { // an identity body whose part is written as it is
		w.Header().Set("Content-Length", strconv.Itoa(len(forged)))
		w.(http.Flusher).Flush()
		_, _ = io.WriteString(w, forged)
		return
	}
	w.Header().Set("Protocol", r.Proto)
	if r.TLS != nil {
		w.Header().Set("Secure", r.TLS.ServerName)
	}
	_, _ = io.Copy(io.Discard, r.Body)
}

// serve returns the address of a server, and how to stop it.
func serve(t *testing.T, config *tls.Config) (address string, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(handler), TLSConfig: config, MaxHeaderBytes: 8 << 10, DisableGeneralOptionsHandler: true}
	done := make(chan error, 1)
	go func() { done <- httpserver.Serve(srv, ln) }()
	return ln.Addr().String(), func() error {
		require.NoError(t, srv.Shutdown(context.Background()))
		return await.Receive(t, done, "the end of the server")
	}
}

// refusedByNetHTTP are requests that never come to a handler.
var refusedByNetHTTP = map[string]struct {
	request string
	status  int
	field   string
}{
	"no request line":     {"nonsense\r\n\r\n", 400, ""},
	"no version":          {"GET / HTTP/9\r\n\r\n", 400, ""},
	"another version":     {"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505, ""},
	"no Host":             {"GET / HTTP/1.1\r\n\r\n", 400, "header.Host"},
	"two Hosts":           {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, ""},
	"a bad Host":          {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "header.Host"},
	"a bad header":        {"GET / HTTP/1.1\r\nHost: a\r\na b: c\r\n\r\n", 400, ""},
	"a large header":      {"GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 32<<10) + "\r\n\r\n", 431, ""},
	"a transfer encoding": {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "header.Transfer-Encoding"},
	"two lengths":         {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, ""},
	"an expectation":      {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: a\r\n\r\n", 417, "header.Expect"},
}

func testRefused(t *testing.T, dial func() net.Conn) {
	t.Helper()
	for name, c := range refusedByNetHTTP {
		for _, before := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} { // on a connection that was used too
			conn := dial()
			go func() { _, _ = io.WriteString(conn, before+c.request) }() // the server need not read all
			reader := bufio.NewReader(conn)
			if before != "" {
				resp, err := http.ReadResponse(reader, nil)
				require.NoError(t, err, name)
				require.Equal(t, 200, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			}
			resp, err := http.ReadResponse(reader, nil)
			require.NoError(t, err, name)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err, name)
			assert.Equal(t, c.status, resp.StatusCode, name)
			assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"), name)
			var e problem.Error
			require.NoError(t, json.Unmarshal(body, &e), "%s: %s", name, body)
			assert.Equal(t, resp.Header.Get("Request-Id"), e.RequestID, name)
			assert.NotEmpty(t, e.RequestID, name)
			assert.Equal(t, c.field, e.Field, name)
			assert.NotEmpty(t, e.Fix, name)
			assert.True(t, resp.Close, name)
			require.NoError(t, conn.Close())
		}
	}
}

func TestServe_RefusesWithProblem(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	address, stop := serve(t, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: certs.TLS.Certificates})
	roots := certs.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: "example.com"}
	testRefused(t, func() net.Conn {
		conn, err := (&tls.Dialer{Config: client}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		return conn
	})
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: client.Clone(), ForceAttemptHTTP2: http2}
		resp := get(t, transport, "https://"+address)
		assert.Equal(t, map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[http2], resp.Header.Get("Protocol"))
		assert.Equal(t, "example.com", resp.Header.Get("Secure"))
		if http2 {
			testLargeHeader(t, transport, "https://"+address)
		}
		transport.CloseIdleConnections()
	}
	require.ErrorIs(t, stop(), http.ErrServerClosed)
}

// testLargeHeader sends a header half again as large as what the server of these tests accepts,
// over HTTP/2.
func testLargeHeader(t *testing.T, transport http.RoundTripper, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("A", strings.Repeat("a", 12<<10))
	resp, err := transport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	var e problem.Error
	require.NoError(t, json.Unmarshal(body, &e), "%s", body)
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
	assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
	assert.Equal(t, resp.Header.Get(problem.RequestIDHeader), e.RequestID)
	assert.Equal(t, problem.TooLarge, e.Code)
}

func TestServe_RefusesWithProblemWithoutTLS(t *testing.T) {
	address, stop := serve(t, nil)
	testRefused(t, func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		return conn
	})
	transport := &http.Transport{}
	resp := get(t, transport, "http://"+address+"/forged")
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, forged, string(body), "what a handler writes stays as it is")
	transport.CloseIdleConnections()
	require.ErrorIs(t, stop(), http.ErrServerClosed)
}

// A server that was shut down before it serves returns too.
func TestServe_ShutdownDuringHandshake(t *testing.T) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, net.ErrClosed }}
	address, stop := serve(t, config)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	_, err = io.WriteString(conn, "\x16\x03\x01")
	require.NoError(t, err)
	require.ErrorIs(t, stop(), http.ErrServerClosed)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)

	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(handler), TLSConfig: config}
	require.NoError(t, srv.Shutdown(t.Context()))
	require.ErrorIs(t, httpserver.Serve(srv, ln), http.ErrServerClosed)
	require.ErrorIs(t, ln.Close(), net.ErrClosed)
}

func get(t *testing.T, transport http.RoundTripper, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}
