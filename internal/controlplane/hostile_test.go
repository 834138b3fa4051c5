package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// hurried serves the control plane's API with as little patience as a test has.
func hurried(t *testing.T, p *plane) (*limit.Listener, hostile.Target) {
	t.Helper()
	ln := loopback(t)
	limited := limit.Listen(ln, limit.Config{Handshakes: 100})
	s := p.api.apiServer(p.tunnels.own.Websockets(t.Context()))
	serveHurried(t, s, func() error { return s.ServeTLS(limited, "", "") })
	return limited, p.target(ln.Addr())
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

func serveHurried(t *testing.T, s *http.Server, serve func() error) {
	s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = time.Second, 2*time.Second, 2*time.Second, 2*time.Second
	served := make(chan error, 1)
	go func() { served <- serve() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, await.Receive(t, served, "the end of the server"), http.ErrServerClosed)
	})
}

func (p *plane) target(at net.Addr) hostile.Target {
	return hostile.Target{Addr: at.String(), TLS: p.tlsFor()}
}

// tlsFor is a client's TLS without a certificate, for a connection by address.
func (p *plane) tlsFor(protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool(), ServerName: "localhost", NextProtos: protocols}
}

// impatience is how long a test gives a server that was told to wait a second or two. It is far
// more, because it only decides how soon a failing test ends.
const impatience = time.Minute

// TestAPI_EndsAttacks sends everything hostile to the HTTPS API. The server ends each connection,
// with nothing that looks like success, and counts it no more.
func TestAPI_EndsAttacks(t *testing.T) {
	t.Parallel()
	p := start(t)
	limited, target := hurried(t, p)
	attacks := hostile.TLS("localhost")
	attacks = append(attacks, hostile.HTTP1("/v1/agents/register")...)
	attacks = append(attacks, hostile.HTTP2("/v1/agents/register", 600)...)
	left, err := target.LeftOpen(t.Context(), attacks, impatience, func(said []byte) bool { return !strings.Contains(string(said), "HTTP/1.1 200") })
	require.NoError(t, err)
	assert.Empty(t, left)
	await.Until(t, "all are gone", func() bool { return limited.Stats().Open == 0 })
	assert.Equal(t, 0, limited.Stats().Handshakes)
}

// TestAPI_EndsSlowCallers sends a byte at a time: of a hello, a header, a body.
func TestAPI_EndsSlowCallers(t *testing.T) {
	t.Parallel()
	_, target := hurried(t, start(t))
	for _, slow := range hostile.Slow("/v1/agents/register") {
		t.Run(slow.Name, func(t *testing.T) {
			t.Parallel()
			ended, err := slow.Ended(t.Context(), target, 20*time.Millisecond, impatience)
			require.NoError(t, err)
			assert.True(t, ended)
		})
	}
}

// TestListeners_EndAttacks: the attacker has no certificate. What one with a certificate may do is
// in tunnel/server.
func TestListeners_EndAttacks(t *testing.T) {
	t.Parallel()
	p := start(t)
	for name, addr := range map[string]net.Addr{listenerTunnel: p.Addrs().Tunnel, listenerEdge: p.Addrs().Edge} {
		anAlertAtMost := func(said []byte) bool { return len(said) < 64 }
		left, err := hostile.Target{Addr: addr.String()}.LeftOpen(t.Context(), hostile.TLS("localhost"), impatience, anAlertAtMost)
		require.NoError(t, err)
		assert.Empty(t, left, name)
		await.Until(t, "all are gone", func() bool { return p.Connections()[name].Open == 0 })
	}
}

func TestTLS_RefusesOldVersions(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, addr := range []net.Addr{p.Addrs().API, p.Addrs().Tunnel} {
		for v := range uint16(3) {
			cfg := p.tlsFor()
			cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10+v, tls.VersionTLS10+v
			_, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", addr.String())
			require.ErrorContains(t, err, "protocol version not supported")
		}
		_, err := (&tls.Dialer{Config: p.tlsFor("spdy/3")}).DialContext(t.Context(), "tcp", addr.String())
		require.ErrorContains(t, err, "no application protocol")
	}
}

// TestCallLimits_FailuresByAddress: one address guesses tokens until it has to wait. That keeps out
// neither another address nor a caller that proves itself from the same one.
func TestCallLimits_FailuresByAddress(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.registered("shop")
	limits := newCallLimits(p.authn, nil)
	limits.failures = limit.NewFailures[netip.Prefix](3, time.Second)
	now := time.Now()
	limits.now = func() time.Time { return now }
	handler := limits.wrap(p.api.handler(p.tunnels.own.Websockets(t.Context())))
	ask := func(from string, cs *tls.ConnectionState) *http.Response {
		return answer(t, handler, from, cs, "POST", "/v1/tokens/check", "Authorization", "Bearer nonsense")
	}
	for range 3 {
		assert.Equal(t, http.StatusUnauthorized, ask("192.0.2.7:1", nil).StatusCode)
	}
	refused := ask("192.0.2.7:2", nil)
	assert.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
	assert.Equal(t, "1", refused.Header.Get("Retry-After"))
	assert.Equal(t, http.StatusUnauthorized, ask("192.0.2.8:1", nil).StatusCode)
	proven := &tls.ConnectionState{PeerCertificates: certs(c.leaf())}
	assert.Equal(t, http.StatusNoContent, answer(t, handler, "192.0.2.7:3", proven, "POST", "/v1/agent/check", "Pipeops-Cluster", c.uid).StatusCode)

	now = now.Add(time.Second)
	assert.Equal(t, http.StatusUnauthorized, ask("192.0.2.7:4", nil).StatusCode, "it may try again")
}

// TestCallLimits_SharesByName: an agent that has all its calls in progress gets no more, and
// others get theirs: other agents, and the same one with a newer certificate.
func TestCallLimits_SharesByName(t *testing.T) {
	t.Parallel()
	p := start(t)
	one, other := p.registered("one"), p.registered("other")
	limits := newCallLimits(p.authn, nil)
	limits.shares = limit.NewShares(10, 1)
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := limits.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			close(entered)
			<-leave
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	as := func(c *cluster, path string) int {
		cs := &tls.ConnectionState{PeerCertificates: certs(c.leaf())}
		return answer(t, handler, "192.0.2.7:1", cs, "GET", path).StatusCode
	}
	done := make(chan int, 1)
	go func() { done <- as(one, "/hang") }()
	await.Closed(t, entered, "the call")
	assert.Equal(t, http.StatusTooManyRequests, as(one, "/"))
	assert.Equal(t, http.StatusNoContent, as(other, "/"))
	close(leave)
	assert.Equal(t, http.StatusNoContent, await.Receive(t, done, "the answer"))
	assert.Equal(t, http.StatusNoContent, as(one, "/"))
}

// TestAPI_BodyLimit: only agents with something to report may send a body of this size.
func TestAPI_BodyLimit(t *testing.T) {
	t.Parallel()
	p := start(t)
	body := strings.NewReader(`{"name":"` + strings.Repeat("x", 100<<10) + `"}`)
	resp, err := p.client().Post(p.Advertised().API+"/v1/agents/register", "application/json", body)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

// TestListeners_ConnectionLimit fills the places of one address at each listener. The next
// connection is reset before TLS, and another address gets through.
func TestListeners_ConnectionLimit(t *testing.T) {
	t.Parallel()
	p := start(t, func(c *Config) { c.Limits = Limits{PerAddress: 3} })
	for name, addr := range map[string]net.Addr{listenerAPI: p.Addrs().API, listenerTunnel: p.Addrs().Tunnel, listenerEdge: p.Addrs().Edge} {
		dial := func(from string) (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			conn, err := d.DialContext(t.Context(), "tcp", addr.String())
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			return conn, err
		}
		for range 3 {
			_, err := dial("127.0.0.9")
			require.NoError(t, err)
		}
		await.Until(t, "they are there", func() bool { return p.Connections()[name].Open == 3 })
		refused, err := dial("127.0.0.9")
		if err == nil { // the reset comes after the connection is there, or with it
			require.NoError(t, refused.SetReadDeadline(time.Now().Add(impatience)))
			_, err = refused.Read(make([]byte, 1))
		}
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = dial("127.0.0.10")
		require.NoError(t, err)
		await.Until(t, "the other is served", func() bool { return p.Connections()[name].Accepted == 4 })
		assert.Equal(t, uint64(1), p.Connections()[name].Refused)
	}
}

// TestAPI_AmbiguousPaths writes the paths of agents' calls in every other way there is. None of
// them is carried out without a certificate.
func TestAPI_AmbiguousPaths(t *testing.T) {
	t.Parallel()
	p := start(t)
	target := p.target(p.Addrs().API)
	for _, path := range []string{
		"//v1/agent/heartbeat", "/v1//agent/heartbeat", "/v1/agent/heartbeat/", "/v1/agents/register/../../agent/heartbeat", "/v1/agents/../agent/heartbeat",
		"/v1/agent%2fheartbeat", "/v1/%61gent/heartbeat", "/V1/agent/heartbeat", "/v1/agent/renew/%2e%2e/heartbeat", "/v1/agent/./heartbeat", "/v1/agent/heartbeat%00",
		"/v1/agent/heartbeat;x", "/v1/agent/heartbeat.", "https://elsewhere/v1/agent/heartbeat", "http://localhost//v1/agent/heartbeat", "*", "/healthz/../v1/agent/heartbeat",
		"/v1/agent/renew#/heartbeat", "/v1/agent/heartbeat?", "/v1/agent/renew%23", "/v1/agent\\heartbeat",
	} {
		said := speak(t, target, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		var status int
		_, err := fmt.Sscanf(said, "HTTP/1.1 %d", &status)
		require.NoError(t, err, "%s: %q", path, said)
		assert.True(t, status >= 300 && status != http.StatusInternalServerError, "%s: %s", path, said)
	}
}

// speak says something over HTTP/1.1 and answers what came back until the end.
func speak(t *testing.T, target hostile.Target, text string) string {
	t.Helper()
	conn, err := target.Send(t.Context(), hostile.Attack{Secure: true, ALPN: "http/1.1", Do: func(c net.Conn) { _, _ = io.WriteString(c, text) }})
	require.NoError(t, err)
	defer hostile.Reset(conn)
	said, err := hostile.Ended(conn, impatience)
	require.NoError(t, err)
	return string(said)
}

// TestTLS_NoEarlyData resumes a session: the server takes no early data, which alone could be
// replayed.
func TestTLS_NoEarlyData(t *testing.T) {
	t.Parallel()
	p := start(t)
	cache := &tickets{}
	for range 2 {
		config := p.tlsFor("http/1.1")
		config.ClientSessionCache = cache
		conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", p.Addrs().API.String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		_, err = io.ReadAll(conn)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	require.NotEmpty(t, cache.seen)
	for _, ticket := range cache.seen {
		_, state, err := ticket.ResumptionState()
		require.NoError(t, err)
		assert.False(t, state.EarlyData, "0-RTT")
	}
}

// tickets keeps all that a server gives.
type tickets struct{ seen []*tls.ClientSessionState }

func (c *tickets) Get(string) (*tls.ClientSessionState, bool) {
	if len(c.seen) == 0 {
		return nil, false
	}
	return c.seen[len(c.seen)-1], true
}

func (c *tickets) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		c.seen = append(c.seen, s)
	}
}

// answer asks a handler as a connection from an address would.
func answer(t *testing.T, h http.Handler, from string, cs *tls.ConnectionState, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "https://localhost"+path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr, r.TLS = from, cs
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func certs(c *x509.Certificate) []*x509.Certificate { return []*x509.Certificate{c} }

// TestTLS_SentCertificates counts certificates: each one too many is a signature that ten thousand
// agents verify when they come back at once.
func TestTLS_SentCertificates(t *testing.T) {
	p := start(t)
	cluster := p.registered("shop")
	for name, c := range map[string]struct {
		at        net.Addr
		protocols []string
		sent      int
	}{
		"an agent with its identity": {p.Addrs().Tunnel, []string{tunnel.ALPN}, 2},
		"a fingerprint alone":        {p.Addrs().Tunnel, []string{tunnel.ALPN, tunnel.SendCA}, 3},
		"the API":                    {p.Addrs().API, []string{"http/1.1"}, 3},
	} {
		cfg := cluster.tlsConfig()
		cfg.ServerName, cfg.NextProtos = "localhost", c.protocols
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", c.at.String())
		require.NoError(t, err, name)
		assert.Len(t, conn.(*tls.Conn).ConnectionState().PeerCertificates, c.sent, name)
		require.NoError(t, conn.Close())
	}
}
