package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// api is an HTTPS API that takes tunnels, as the control plane's does.
func (p *plane) api() *http.Server {
	p.t.Helper()
	return p.apiOn(listenOn(p.t, "127.0.0.1:0"), patience)
}

// apiOn serves it on a listener, with such timeouts for calls.
func (p *plane) apiOn(ln net.Listener, timeout time.Duration) *http.Server {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	sockets := p.Websockets(ctx)
	cfg := p.ca.Server()
	cfg.ClientAuth = tls.RequestClientCert
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+server.WebsocketPath, func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			problem.Write(w, "", problem.Errorf(problem.Unauthorized, "show a certificate", "nobody was identified"))
			return
		}
		if _, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: p.ca.Pool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err != nil {
			problem.Write(w, "", problem.Errorf(problem.Unauthorized, "set the clock", "the certificate is not good: %v", err))
			return
		}
		id, err := tunneltest.Identify(*r.TLS)
		assert.NoError(p.t, err)
		sockets.Serve(w, r, id)
	})
	srv := &http.Server{
		Addr: ln.Addr().String(), Handler: mux, TLSConfig: cfg, ReadHeaderTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(ln, "", "") }()
	p.t.Cleanup(func() {
		cancel()
		_ = srv.Close()
		await.Receive(p.t, served, "the API to stop")
		sockets.Wait()
	})
	return srv
}

// over lets an agent go over the API where it has to. The certificate's name is not that of
// an address, so the API's TLS says it.
func (p *plane) over(api *http.Server, id string) func(*tunnel.Config) {
	certificate := p.ca.Agent(id)
	return func(c *tunnel.Config) {
		c.Websocket = "https://" + api.Addr
		c.WebsocketTLS = func(context.Context) (*tls.Config, error) { return certificate, nil }
		c.Fallback = tunnel.Fallback{HeadStart: 100 * time.Millisecond, Patience: time.Hour, Retry: time.Hour}
	}
}

func listenOn(t testing.TB, address string) net.Listener {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	require.NoError(t, err)
	return ln
}

// firewall is what agents meet at the tunnel's port.
func firewall(t testing.TB, meet func(net.Conn)) string {
	t.Helper()
	ln := listenOn(t, "127.0.0.1:0")
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			open = append(open, conn)
			meet(conn)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		await.Closed(t, done, "the firewall to stop")
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	return ln.Addr().String()
}

func TestWebsocket_WhenPortBlocked(t *testing.T) {
	for name, blocked := range map[string]string{
		"rejects": "127.0.0.1:1",
		"drops":   firewall(t, func(net.Conn) {}),
		"resets": firewall(t, func(conn net.Conn) {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}),
		"answers HTTP": firewall(t, func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
		}),
		"inspects TLS": startPlane(t, tunneltest.NewCA(t), "127.0.0.1:0").addr,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			api := p.api()
			a := p.agent("a1", p.over(api, "a1"), func(c *tunnel.Config) { c.ServerAddress = blocked })
			require.Equal(t, tunnel.Websocket, a.Status().Transport, "connected by")
			mustAsk(t, p.client("a1", http1), strings.Repeat("x", 100<<10))
			mustAsk(t, p.client("a1", http2), strings.Repeat("x", 100<<10))
			p.Disconnect("a1")
			await.Until(t, "it is back", func() bool { return a.Status().Reconnects == 1 && p.Connected("a1") })
			mustAsk(t, p.client("a1", http2), "again")
			await.Until(t, "that was told last", func() bool { return strings.HasSuffix(p.told(), "up a1") })
		})
	}
}

// timed is a listener that knows the deadlines of what it has accepted.
type timed struct {
	net.Listener
	mu       sync.Mutex
	accepted []*timedConn
}

// Accept implements net.Listener.
func (l *timed) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = append(l.accepted, &timedConn{Conn: conn})
	return l.accepted[len(l.accepted)-1], nil
}

// timedConn knows how often its deadlines were set, and what they are now.
type timedConn struct {
	net.Conn
	mu          sync.Mutex
	set         int
	read, write time.Time
}

func (c *timedConn) note(deadline time.Time, of ...*time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set++
	for _, d := range of {
		*d = deadline
	}
}

// SetDeadline implements net.Conn.
func (c *timedConn) SetDeadline(t time.Time) error {
	c.note(t, &c.read, &c.write)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *timedConn) SetReadDeadline(t time.Time) error {
	c.note(t, &c.read)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.note(t, &c.write)
	return c.Conn.SetWriteDeadline(t)
}

// The API's timeouts are for calls.
func TestWebsocket_OutlivesTimeouts(t *testing.T) {
	p := newPlane(t)
	ln := &timed{Listener: listenOn(t, "127.0.0.1:0")}
	api := p.apiOn(ln, patience)
	p.agent("a1", p.over(api, "a1"), func(c *tunnel.Config) { c.ServerAddress = firewall(t, func(net.Conn) {}) })
	mustAsk(t, p.client("a1", http1), "hello")
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for _, conn := range ln.accepted {
		conn.mu.Lock()
		if conn.set == 0 || !conn.read.IsZero() || !conn.write.IsZero() {
			t.Errorf("deadlines were set %d times, and are %s to read and %s to write", conn.set, conn.read, conn.write)
		}
		conn.mu.Unlock()
	}
	assert.Len(t, ln.accepted, 1, "connections of one agent")
}

func TestWebsocket_ThroughProxy(t *testing.T) {
	p := newPlane(t)
	api := p.api()
	blocked := firewall(t, func(net.Conn) {})
	proxy := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "me:secret"})
	via, err := url.Parse(proxy.URL("me:secret"))
	require.NoError(t, err)
	a := p.agent("a1", p.over(api, "a1"), func(c *tunnel.Config) {
		c.ServerAddress = blocked
		c.Proxy = func(*url.URL) (*url.URL, error) { return via, nil }
	})
	mustAsk(t, p.client("a1", http2), "hello")
	if asked := proxy.Asked(); a.Status().Transport != tunnel.Websocket || len(asked) != 2 {
		t.Errorf("%+v; the proxy was asked for %v", a.Status(), asked)
	}
	p.agent("a2", p.over(api, "a2"), func(c *tunnel.Config) {
		c.ServerAddress = blocked
		c.Proxy = func(u *url.URL) (*url.URL, error) { // NO_PROXY with the API
			if u.Host == api.Addr {
				return nil, nil
			}
			return &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, nil
		}
	})
}

// The agent moves when the firewall opens, and not while a Runner is connected.
func TestWebsocket_BackToTCP(t *testing.T) {
	p := newPlane(t)
	api := p.api()
	wire := faultproxy.New(t, p.addr)
	wire.Set(faultproxy.Silent)
	a := p.agent("a1", p.over(api, "a1"), func(c *tunnel.Config) {
		c.ServerAddress, c.Fallback.Retry = wire.Addr(), 100*time.Millisecond
	})
	client := p.client("a1", http1)
	mustAsk(t, client, "over a websocket")
	before := p.Stats().Accepted
	wire.Set(faultproxy.Condition{})
	await.Until(t, "it has seen that TCP works", func() bool { return p.Stats().Accepted > before })
	mustAsk(t, client, "on the same connection")
	s := a.Status()
	assert.True(t, s.Transport == tunnel.Websocket && s.Reconnects == 0, "%+v", s)
	client.CloseIdleConnections()
	await.Until(t, "it has moved", func() bool { return a.Status().Transport == tunnel.TCP })
	await.Until(t, "it is online", func() bool { return p.Connected("a1") })
	mustAsk(t, client, "over TCP")
	s = a.Status()
	// On a busy machine, TCP may lose to the websocket once more.
	assert.True(t, s.Reconnects > 0 && s.LastError == "", "%+v", s)
}

// Agents that know TCP works do not leave it at once.
func TestWebsocket_NotAfterRestart(t *testing.T) {
	p := newPlane(t)
	api := p.api()
	wire := faultproxy.New(t, p.addr)
	patient, hasty := p.over(api, "a1"), p.over(api, "a2")
	here := func(c *tunnel.Config) { c.ServerAddress = wire.Addr() }
	a1 := p.agent("a1", patient, here)
	a2 := p.agent("a2", hasty, here, func(c *tunnel.Config) { c.Fallback.Patience = time.Millisecond })
	wire.Set(faultproxy.Silent)
	for _, id := range []string{"a1", "a2"} {
		p.Disconnect(id)
	}
	wire.Reset()
	a2.waitFor(t, tunnel.Connected)
	await.Until(t, "the hasty one takes the other way", func() bool { return a2.Status().Transport == tunnel.Websocket })
	wire.Set(faultproxy.Condition{})
	wire.Reset()
	await.Until(t, "the patient one is back", func() bool { return a1.Status().Reconnects == 1 })
	assert.Equal(t, tunnel.TCP, a1.Status().Transport)
}

func TestWebsocket_Refusals(t *testing.T) {
	p := newPlane(t)
	p.revoke("revoked", server.ErrRevoked)
	api := p.api()
	elsewhere := &http.Server{Addr: startHTTPS(t, p)}
	stranger := tunneltest.NewCA(t).Agent("a1")
	stranger.RootCAs = p.ca.Pool()
	blocked := func(c *tunnel.Config) { c.ServerAddress = "127.0.0.1:1" }
	for name, test := range map[string]struct {
		id     string
		change func(*tunnel.Config)
		phase  tunnel.Phase
		words  []string
	}{
		"revoked":     {"revoked", p.over(api, "revoked"), tunnel.Refused, []string{"revoked", "new token"}},
		"expired":     {"a1", func(c *tunnel.Config) { useForAPI(c, api, p.ca.AgentFor("a1", -time.Minute)) }, tunnel.Waiting, []string{"127.0.0.1:1", "certificate is not good", api.Addr}},
		"stranger":    {"a1", func(c *tunnel.Config) { useForAPI(c, api, stranger) }, tunnel.Waiting, []string{"certificate is not good"}},
		"no such API": {"a1", p.over(elsewhere, "a1"), tunnel.Waiting, []string{"404"}},
		"no API":      {"a1", p.over(&http.Server{Addr: "127.0.0.1:1"}, "a1"), tunnel.Waiting, []string{"127.0.0.1:1", "websocket", "firewall"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := p.bareAgent(test.id, test.change, blocked)
			a.waitFor(t, test.phase)
			for _, word := range test.words {
				assert.Contains(t, a.Status().LastError, word)
			}
		})
	}
}

func useForAPI(c *tunnel.Config, api *http.Server, certificate *tls.Config) {
	c.Websocket = "https://" + api.Addr
	c.WebsocketTLS = func(context.Context) (*tls.Config, error) { return certificate, nil }
}

// startHTTPS is a server that is not a control plane.
func startHTTPS(t *testing.T, p *plane) string {
	ln := listenOn(t, "127.0.0.1:0")
	srv := &http.Server{Handler: http.NotFoundHandler(), TLSConfig: p.ca.Server(), ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = srv.Close(); await.Receive(t, served, "the other server to stop") })
	return ln.Addr().String()
}

func TestProbe_ReportsTransport(t *testing.T) {
	p := newPlane(t)
	api := p.api()
	certificate := p.ca.Agent("a1")
	cfg := tunnel.Config{
		ServerAddress: "127.0.0.1:1", ServerName: tunneltest.ServerName, AgentID: "a1", Log: testLog(),
		TLS: func(context.Context) (*tls.Config, error) { return certificate, nil },
	}
	p.over(api, "a1")(&cfg)
	way, err := tunnel.Probe(t.Context(), cfg)
	assert.True(t, way == tunnel.Websocket && err == nil, "%q, %v", way, err)
	certificate = &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool()}
	var explained *tunnel.Error
	way, err = tunnel.Probe(t.Context(), cfg)
	assert.ErrorAs(t, err, &explained, "without a certificate: %q", way)
}

func TestWebsocket_OtherProtocol(t *testing.T) {
	p := newPlane(t)
	api := p.api()
	conn, err := tls.Dial("tcp", api.Addr, p.ca.Agent("a1"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET "+server.WebsocketPath+" HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: chat\r\n\r\n")
	require.NoError(t, err)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(conn)
	var late net.Error
	assert.True(t, !errors.As(err, &late) || !late.Timeout(), "it is still open: %q, %v", answer, err)
	await.Until(t, "it is refused", func() bool { return p.Stats().Refused == 1 && p.Stats().Sessions == 0 })
}
