package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func TestDial_HTTP1KeepAlive(t *testing.T) {
	p := newPlane(t)
	p.agent("a1")
	client := p.client("a1", http1)
	var opened atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			opened.Add(1)
		}
	}})
	for i := range 50 {
		_, err := ask(ctx, client, fmt.Sprint("request ", i))
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, opened.Load())
}

func TestDial_ManyClients(t *testing.T) {
	for _, protocol := range []struct {
		name string
		set  func(*http.Protocols)
	}{{"HTTP/1.1", http1}, {"HTTP/2.0", http2}} {
		t.Run(protocol.name, func(t *testing.T) {
			p := newPlane(t)
			p.agent("a1")
			client := p.client("a1", protocol.set)
			body := strings.Repeat("0123456789abcdef", 2048)
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					for j := range 3 {
						header, err := ask(t.Context(), client, fmt.Sprint(i, j, body))
						if err != nil {
							t.Error(err)
							return
						}
						assert.Equal(t, protocol.name, header.Get("Proto"), "the agent saw")
					}
				})
			}
			group.Wait()
		})
	}
}

func TestDial_TwoHundredStreams(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1")
	a.waitFor(t, tunnel.Connected)
	go echoConnections(a.Listener())
	t.Cleanup(func() { _ = a.Listener().Close() })
	await.Until(t, "online", func() bool { return p.Connected("a1") })

	conns := make([]net.Conn, 200)
	var group sync.WaitGroup
	for i := range conns {
		group.Go(func() {
			conn, err := p.Dial(t.Context(), "a1")
			if err != nil {
				t.Error(err)
				return
			}
			conns[i] = conn
			assert.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		})
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for i, conn := range conns {
		group.Go(func() {
			defer func() { _ = conn.Close() }()
			want := fmt.Sprintf("stream %03d", i)
			_, err := io.WriteString(conn, want)
			assert.NoError(t, err)
			got := make([]byte, len(want))
			_, err = io.ReadFull(conn, got)
			assert.True(t, err == nil && string(got) == want, "got %q, %v", got, err)
		})
	}
	group.Wait()
	s := p.Stats()
	assert.True(t, s.Dials == 0 && s.DialErrors == 0 && s.DialsTotal == 200, "stats %+v", s)
}

func echoConnections(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// The way of a Runner: mutual TLS that ends in the agent, found by the SNI of a connection that
// the control plane cannot read.
func TestHandover_RunnerTLS(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1")
	a.waitFor(t, tunnel.Connected)
	inner := p.ca.AgentFor("a1", time.Hour)
	inner.ClientCAs, inner.ClientAuth = p.ca.Pool(), tls.RequireAndVerifyClientCert
	srv := &http.Server{Handler: echo{}, ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(a.Listener(), inner)) }()
	t.Cleanup(func() { _ = srv.Close(); await.Receive(t, served, "the agent's server to stop") })
	await.Until(t, "online", func() bool { return p.Connected("a1") })

	edge := serveEdge(t, p.Server)
	runner := p.ca.Agent("runner")
	runner.ServerName = "a1.agents.example.test"
	var local atomic.Value
	transport := &http.Transport{
		TLSClientConfig: runner,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, edge)
			if err == nil {
				local.Store(conn.LocalAddr().String())
			}
			return conn, err
		},
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for i := range 5 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://agent/", strings.NewReader(fmt.Sprint("call ", i)))
		require.NoError(t, err)
		resp, err := client.Do(req)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint("call ", i), string(got), "got %q", got)
		assert.EqualValues(t, local.Load(), resp.Header.Get("Remote"))
	}
	s := p.Stats()
	assert.True(t, s.Connections == 1 && s.BytesToAgents != 0 && s.BytesFromAgents != 0, "stats %+v", s)
	transport.CloseIdleConnections()
	await.Until(t, "the connection is gone from the stats", func() bool { return p.Stats().Connections == 0 })
}

// serveEdge reads the SNI and hands connections over, with the ClientHello to be replayed.
func serveEdge(t *testing.T, s *server.Server) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var group sync.WaitGroup
	t.Cleanup(func() { _ = ln.Close(); group.Wait() })
	group.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				peeked := &replay{Conn: conn}
				id, _, _ := strings.Cut(peeked.sni(), ".")
				if err := s.Handover(t.Context(), id, peeked); err != nil {
					t.Errorf("handover: %v", err)
					_ = conn.Close()
				}
			})
		}
	})
	return ln.Addr().String()
}

var errPeeked = errors.New("seen enough")

// replay reads what was read before once more.
type replay struct {
	net.Conn
	seen    []byte
	peeking bool
}

func (r *replay) Read(p []byte) (int, error) {
	if !r.peeking && len(r.seen) > 0 {
		n := copy(p, r.seen)
		r.seen = r.seen[n:]
		return n, nil
	}
	n, err := r.Conn.Read(p)
	if r.peeking {
		r.seen = append(r.seen, p[:n]...)
	}
	return n, err
}

func (r *replay) Write(p []byte) (int, error) {
	if r.peeking {
		return 0, errPeeked
	}
	return r.Conn.Write(p)
}

func (r *replay) sni() string {
	var name string
	r.peeking = true
	_ = tls.Server(r, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name = hello.ServerName
		return nil, errPeeked
	}}).HandshakeContext(context.Background())
	r.peeking = false
	return name
}

func TestDial_Errors(t *testing.T) {
	p := newPlane(t, func(c *server.Config) {
		c.Limits.Dials = 1
		c.Limits.DialTimeout = 10 * time.Millisecond
	})
	_, err := p.Dial(t.Context(), "nobody")
	assert.ErrorIs(t, err, server.ErrNotConnected, "unknown agent")
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	assert.ErrorIs(t, p.Handover(t.Context(), "nobody", near), server.ErrNotConnected, "handover to an unknown agent")
	assert.NoError(t, near.SetDeadline(time.Now()), "the connection was taken in spite of the error")

	wire := faultproxy.New(t, p.addr)
	p.agent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	wire.Set(faultproxy.Silent)
	_, err = p.Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrBusy, "silent agent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Dial(ctx, "a1")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestProxy_Connect(t *testing.T) {
	for name, userinfo := range map[string]*url.Userinfo{
		"open": nil, "with password": url.UserPassword("agent", "s3cret"),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlane(t)
			proxy := newConnectProxy(t, userinfo)
			p.agent("a1", func(c *tunnel.Config) {
				c.Proxy = func(target *url.URL) (*url.URL, error) {
					assert.Equal(t, p.addr, target.Host, "asked for %s", target)
					return &url.URL{Scheme: "http", Host: proxy.addr, User: userinfo}, nil
				}
			})
			mustAsk(t, p.client("a1", http1), "through the proxy")
			got := proxy.asked.Load()
			assert.True(t, got == p.addr, "the proxy was asked for %v", got)
		})
	}
}

func TestProxy_RefusesPassword(t *testing.T) {
	p := newPlane(t)
	proxy := newConnectProxy(t, url.UserPassword("agent", "right"))
	a := p.bareAgent("a1", func(c *tunnel.Config) {
		c.Proxy = func(*url.URL) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: proxy.addr, User: url.UserPassword("agent", "wr0ng")}, nil
		}
	})
	a.waitFor(t, tunnel.Waiting)
	got := a.Status().LastError
	if !strings.Contains(got, "407") || !strings.Contains(got, "HTTPS_PROXY") || strings.Contains(got, "wr0ng") {
		t.Errorf("error %q", got)
	}
}

// connectProxy is an HTTP proxy for CONNECT.
type connectProxy struct {
	addr  string
	asked atomic.Value
}

func newConnectProxy(t *testing.T, user *url.Userinfo) *connectProxy {
	t.Helper()
	proxy := &connectProxy{}
	tunnels := &link.Gate{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}})
		name, password, _ := given.BasicAuth()
		if user != nil && url.UserPassword(name, password).String() != user.String() {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		proxy.asked.Store(r.Host)
		far, err := new(net.Dialer).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		near, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
		tunnels.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
		tunnels.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
	})
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	proxy.addr = ln.Addr().String()
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); await.Receive(t, served, "the proxy to stop"); tunnels.Shut() })
	return proxy
}

// Moves many windows both ways.
func TestDial_Bulk(t *testing.T) {
	p := newPlane(t)
	p.agent("a1")
	body := strings.Repeat("0123456789abcdef", 4<<20/16)
	mustAsk(t, p.client("a1", http1), body)
	mustAsk(t, p.client("a1", http2), body)
}
