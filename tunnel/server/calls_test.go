package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// callee is what serves calls. It answers with whom the session has proven, and hangs at
// /hang until it is let go.
type callee struct {
	come   chan net.Conn
	closed chan struct{}
	once   sync.Once
	hangs  chan struct{} // told of each that does
	let    chan struct{}
}

type provenKey struct{}

type proven struct {
	net.Conn
	state tls.ConnectionState
}

// Accept implements net.Listener.
func (c *callee) Accept() (net.Conn, error) {
	select {
	case conn := <-c.come:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (c *callee) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// Addr implements net.Listener.
func (c *callee) Addr() net.Addr { return &net.UnixAddr{Name: "calls"} }

// ServeHTTP implements http.Handler.
func (c *callee) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	state := r.Context().Value(provenKey{}).(*proven).state
	id, err := tunneltest.Identify(state)
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/hang" {
		c.hangs <- struct{}{}
		select {
		case <-c.let:
		case <-r.Context().Done():
		}
	}
	w.Header().Set("Agent", id)
	w.Header().Set("Serial", state.PeerCertificates[0].SerialNumber.String())
	w.Header().Set("Remote", r.RemoteAddr)
	echo{}.ServeHTTP(w, r)
}

// callees serve calls until the test ends; the change has a server hand them over.
func callees(t testing.TB) (*callee, func(*server.Config)) {
	t.Helper()
	c := &callee{come: make(chan net.Conn), closed: make(chan struct{}), hangs: make(chan struct{}), let: make(chan struct{})}
	srv := &http.Server{
		Handler: c, ReadHeaderTimeout: patience, Protocols: new(http.Protocols),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, provenKey{}, conn)
		},
	}
	srv.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(c) }()
	t.Cleanup(func() {
		_ = srv.Close()
		await.Receive(t, served, "the callee to stop")
	})
	return c, func(cfg *server.Config) {
		cfg.Calls = func(conn net.Conn, state tls.ConnectionState) {
			select {
			case c.come <- &proven{conn, state}:
			case <-c.closed:
				_ = conn.Close()
			}
		}
	}
}

// dialer is a Tunnel or a Set.
type dialer interface {
	DialAPI(ctx context.Context) (net.Conn, error)
}

// caller is an HTTP client whose calls go through an agent's tunnel.
func caller(d dialer) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialAPI(ctx) },
		DisableKeepAlives: true,
	}}
}

func TestCalls_OverTunnel(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	a, other := p.agent("a1"), p.agent("a2")
	large := strings.Repeat("more than one window holds ", 40_000)
	for _, body := range []string{"hello", large} {
		if header := mustAsk(t, caller(a), body); header.Get("Agent") != "a1" || !strings.HasPrefix(header.Get("Remote"), "127.0.0.1:") {
			t.Errorf("it came as %q from %q", header.Get("Agent"), header.Get("Remote"))
		}
	}
	assert.Equal(t, "a2", mustAsk(t, caller(other), "hello").Get("Agent"), "it came as")
	mustAsk(t, p.client("a1", http1), "Runners as before")
	await.Until(t, "no call is in progress", func() bool { return p.Stats().Calls == 0 })
}

// The server closes their streams, and nothing else.
func TestCalls_ServerWithout(t *testing.T) {
	p := newPlane(t)
	tcp, web := p.agent("a1"), p.agent("a2", p.over(p.api(), "a2"), func(c *tunnel.Config) { c.ServerAddress = "127.0.0.1:1" })
	for _, a := range []*agent{tcp, web} {
		conn, err := a.DialAPI(t.Context())
		require.NoError(t, err)
		_, err = conn.Write([]byte("POST /hang HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		_, err = conn.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF, "a call got")
		s := a.Status()
		assert.Zero(t, s.Reconnects, "status %+v", s)
		_ = conn.Close()
	}
	mustAsk(t, p.client("a1", http1), "hello")
}

// speaking is an attacker who negotiates the given protocols.
func (p *plane) speaking(t *testing.T, id string, protocols ...string) *attacker {
	t.Helper()
	cfg := p.ca.Agent(id)
	cfg.NextProtos = protocols
	mux := link.Client(dialTLS(t, p.addr, cfg), nil, func(*mux.Stream) {})
	t.Cleanup(func() { _ = mux.Close() })
	return &attacker{t: t, mux: mux}
}

// mark begins a call.
func (a *attacker) mark() *mux.Stream {
	a.t.Helper()
	stream, err := a.mux.OpenStream()
	require.NoError(a.t, err)
	_, err = stream.Write([]byte{link.CallMark})
	require.NoError(a.t, err)
	return stream
}

func TestCalls_RefusedBeforeLogin(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	evil := p.speaking(t, "evil", link.ALPN)
	evil.mark()
	evil.isThrownOut()
}

// A call comes with the login and waits. The login is refused, so the call is never made.
func TestCalls_WaitForLogin(t *testing.T) {
	c, calls := callees(t)
	asked, decide := make(chan struct{}), make(chan struct{})
	p := newPlane(t, calls, func(cfg *server.Config) {
		cfg.Authorize = func(ctx context.Context, _ string) error {
			close(asked)
			select {
			case <-decide:
			case <-ctx.Done():
			}
			return server.ErrRevoked
		}
		taken := cfg.Calls
		cfg.Calls = func(conn net.Conn, state tls.ConnectionState) {
			t.Error("a call before the login is through")
			taken(conn, state)
		}
	})
	evil := p.speaking(t, "evil", link.ALPN)
	evil.say(&msg.Login{User: "evil"})
	await.Closed(t, asked, "the login to be judged")
	if stream, err := evil.mux.OpenStream(); err == nil {
		_, _ = stream.Write([]byte("\x00POST /hang HTTP/1.1\r\nHost: x\r\n\r\n"))
	}
	close(decide)
	evil.isThrownOut()
	p.stop()
	select {
	case <-c.hangs:
		t.Error("the call was made")
	default:
	}
}

// changing has an agent's certificate change while it runs.
func (p *plane) changing(now *atomic.Pointer[tls.Config], change ...func(*tunnel.Config)) *agent {
	p.t.Helper()
	now.Store(p.ca.Agent("a1"))
	source := func(context.Context) (*tls.Config, error) { return now.Load(), nil }
	return p.agent("a1", append(change, func(c *tunnel.Config) {
		c.TLS = source
		if c.WebsocketTLS != nil {
			c.WebsocketTLS = source
		}
	})...)
}

// A new certificate comes while the tunnel is up. It is proven inside the tunnel, once.
func TestCalls_ProveRenewedCertificate(t *testing.T) {
	_, calls := callees(t)
	var identified atomic.Int64
	p := newPlane(t, calls, func(c *server.Config) {
		identify := c.Identify
		c.Identify = func(state tls.ConnectionState) (string, error) {
			identified.Add(1)
			return identify(state)
		}
	})
	for way, change := range map[tunnel.Transport][]func(*tunnel.Config){
		tunnel.TCP:       nil,
		tunnel.Websocket: {p.over(p.api(), "a1"), func(c *tunnel.Config) { c.ServerAddress = "127.0.0.1:1" }},
	} {
		t.Run(string(way), func(t *testing.T) {
			var now atomic.Pointer[tls.Config]
			a := p.changing(&now, change...)
			old := mustAsk(t, caller(a), "hello").Get("Serial")
			now.Store(p.ca.Agent("a1"))
			before := identified.Load()
			for range 3 {
				header := mustAsk(t, caller(a), "hello")
				assert.NotEqual(t, old, header.Get("Serial"))
				assert.Equal(t, "a1", header.Get("Agent"))
				assert.True(t, strings.HasPrefix(header.Get("Remote"), "127.0.0.1:"), header.Get("Remote"))
			}
			assert.EqualValues(t, 1, identified.Load()-before, "proven once")
			mustAsk(t, p.client("a1", http1), "the tunnel continues")
			s := a.Status()
			assert.True(t, s.Transport == way && s.Reconnects == 0, "status %+v", s)
			assert.NoError(t, a.stop())
			await.Until(t, "it is gone", func() bool { return !p.Connected("a1") })
		})
	}
}

// No call is made with it, nor with the old one.
func TestCalls_RefusedCertificate(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	for name, bad := range map[string]*tls.Config{
		"expired": p.ca.AgentFor("a1", -time.Minute), "another CA's": tunneltest.NewCA(t).Agent("a1"),
	} {
		t.Run(name, func(t *testing.T) {
			var now atomic.Pointer[tls.Config]
			a := p.changing(&now)
			mustAsk(t, caller(a), "hello")
			now.Store(bad)
			for range 2 {
				_, err := a.DialAPI(t.Context())
				assert.Error(t, err, "a stream with a certificate that is not accepted")
			}
			mustAsk(t, p.client("a1", http1), "the tunnel continues")
			assert.NoError(t, a.stop())
			await.Until(t, "it is gone", func() bool { return !p.Connected("a1") })
		})
	}
}

// prove has an attacker prove a certificate in its session, by that protocol's name.
func (a *attacker) prove(cfg *tls.Config, protocol string) error {
	a.t.Helper()
	stream, err := a.mux.OpenStream()
	require.NoError(a.t, err)
	require.NoError(a.t, stream.SetDeadline(time.Now().Add(patience)))
	cfg = cfg.Clone()
	cfg.NextProtos = []string{protocol}
	conn := tls.Client(link.NewMarked(stream, link.ProofMark), cfg)
	if err := conn.HandshakeContext(a.t.Context()); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// An agent can neither prove another's certificate, nor reuse a proof that was made for
// something else.
func TestProof_RefusesOtherAgent(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	session := func() *attacker {
		evil := p.speaking(t, "evil", link.ALPN)
		evil.register(evil.login("evil"), "evil")
		return evil
	}
	evil := session()
	assert.Error(t, evil.prove(p.ca.Agent("victim"), link.ALPNProof), "another agent's certificate was taken")
	evil.isThrownOut()
	for _, protocol := range []string{link.ALPN, link.ALPNSendCA, "http/1.1"} {
		assert.Error(t, session().prove(p.ca.Agent("evil"), protocol), "what an agent proves for %s was taken", protocol)
	}
	evil = session()
	assert.NoError(t, evil.prove(p.ca.Agent("evil"), link.ALPNProof))
	assert.Error(t, evil.prove(p.ca.Agent("evil"), link.ALPNProof), "again at once")
	early := p.speaking(t, "evil", link.ALPN)
	assert.Error(t, early.prove(p.ca.Agent("evil"), link.ALPNProof), "before the login")
	early.isThrownOut()
	outside := p.ca.Agent("evil")
	outside.NextProtos = []string{link.ALPNProof}
	if conn, err := (&tls.Dialer{Config: outside}).DialContext(t.Context(), "tcp", p.addr); err == nil {
		_ = conn.Close()
		t.Error("the tunnel's port takes what is for inside")
	}
}

// The next call does not wait for the lost tunnel.
func TestCalls_EndWithTunnel(t *testing.T) {
	c, calls := callees(t)
	p := newPlane(t, calls)
	wire := faultproxy.New(t, p.addr)
	a := p.agent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	failed := make(chan error, 1)
	go func() {
		_, err := askAt(t.Context(), caller(a), "/hang")
		failed <- err
	}()
	await.Receive(t, c.hangs, "the call that hangs")
	wire.Set(faultproxy.Silent) // so that it does not come again
	wire.Reset()
	assert.Error(t, await.Receive(t, failed, "the call to fail"), "the call was answered")
	await.Until(t, "calls fail at once", func() bool {
		_, err := a.DialAPI(t.Context())
		return err != nil
	})
	close(c.let)
	await.Until(t, "it is not in progress any more", func() bool { return p.Stats().Calls == 0 })
	wire.Set(faultproxy.Condition{})
	await.Until(t, "calls go through again", func() bool {
		_, err := ask(t.Context(), caller(a), "hello")
		return err == nil
	})
}

// An agent takes all its calls and is silent, until the server that serves them ends them.
func TestCalls_StalledCalls(t *testing.T) {
	_, calls := callees(t)
	stalled := make(chan net.Conn, 2)
	p := newPlane(t, calls, func(c *server.Config) {
		c.Limits.Calls = cap(stalled)
		serve, left := c.Calls, atomic.Int64{}
		c.Calls = func(conn net.Conn, state tls.ConnectionState) {
			if left.Add(1) <= int64(cap(stalled)) {
				stalled <- conn
				return
			}
			serve(conn, state)
		}
	})
	a, other := p.agent("a1"), p.agent("a2")
	for _, text := range []string{"P", "POST / HTTP/1.1\r\nX: "} {
		conn, err := a.DialAPI(t.Context())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
	}
	await.Until(t, "all its calls are taken", func() bool { return p.Stats().Calls == cap(stalled) })
	mustAsk(t, caller(other), "others call")
	mustAsk(t, p.client("a1", http1), "Runners come")
	_, err := ask(t.Context(), caller(a), "one more")
	assert.Error(t, err, "one call more than its share")
	for range cap(stalled) {
		assert.NoError(t, await.Receive(t, stalled, "a stalled call").Close())
	}
	await.Until(t, "there is room again", func() bool {
		_, err := ask(t.Context(), caller(a), "hello")
		return err == nil
	})
	await.Until(t, "no call is in progress", func() bool { return p.Stats().Calls == 0 })
	s := a.Status()
	assert.Zero(t, s.Reconnects, "it cost the tunnel: %+v", s)
}

// No more calls are taken meanwhile.
func TestCalls_DrainBeforeStop(t *testing.T) {
	c, calls := callees(t)
	p := newPlane(t, calls, func(c *server.Config) { c.Limits.CallsDrain = 10 * patience })
	a := p.agent("a1")
	answered := make(chan error, 1)
	go func() {
		_, err := askAt(t.Context(), caller(a), "/hang")
		answered <- err
	}()
	await.Receive(t, c.hangs, "the call that hangs")
	var stopped sync.WaitGroup
	stopped.Go(p.stop)
	await.Until(t, "no more are taken", func() bool {
		_, err := ask(t.Context(), caller(a), "hello")
		return err != nil
	})
	close(c.let)
	assert.NoError(t, await.Receive(t, answered, "the answer"))
	stopped.Wait()
}

func askAt(ctx context.Context, client *http.Client, path string) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api"+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Header, err
}

// settled is closed when Settle has returned.
func settled(t testing.TB, s interface{ Settle(context.Context) }) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Settle(t.Context())
	}()
	return done
}

func TestCalls_WaitForFirstConnection(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	wire := faultproxy.New(t, p.addr)
	wire.Set(faultproxy.Silent)
	a := p.bareAgent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	done := settled(t, a)
	a.waitFor(t, tunnel.Connecting)
	_, err := a.DialAPI(t.Context())
	assert.Error(t, err, "a stream before there is a tunnel")
	select {
	case <-done:
		t.Error("it does not wait")
	default:
	}
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	a.Settle(given) // it returns
	wire.Set(faultproxy.Condition{})
	await.Closed(t, done, "the tunnel is up")
	mustAsk(t, caller(a), "hello")
}

func TestCalls_SetWaitsForNextConnection(t *testing.T) {
	_, calls := callees(t)
	p := newPlane(t, calls)
	wire := faultproxy.New(t, p.addr)
	s := newSet(p, func(c *tunnel.SetConfig) { c.ServerAddress = wire.Addr() })
	connected := func(is bool) func(tunnel.SetStatus) bool {
		return func(status tunnel.SetStatus) bool { return (status.Phase == tunnel.Connected) == is }
	}
	s.await("it is up", connected(true))
	wire.Set(faultproxy.Silent)
	wire.Reset()
	s.await("it is lost", connected(false))
	done := settled(t, s)
	wire.Set(faultproxy.Condition{})
	await.Closed(t, done, "the next attempt")
	s.await("one is up again", connected(true))
	mustAsk(t, caller(s), "hello")
}

func TestCalls_FailWithoutTunnel(t *testing.T) {
	const closed = "127.0.0.1:1"
	_, calls := callees(t)
	p := newPlane(t, calls)
	a := p.bareAgent("a1", func(c *tunnel.Config) { c.ServerAddress = closed })
	await.Closed(t, settled(t, a), "the attempt has failed")

	// One of two nodes is enough to wait for, whatever becomes of the other.
	s := newSet(p)
	s.told(at(closed), p.endpoint())
	await.Closed(t, settled(t, s), "one is up")
	mustAsk(t, caller(s), "hello")

	down := newSet(p, func(c *tunnel.SetConfig) { c.ServerAddress = closed })
	await.Closed(t, settled(t, down), "all have failed")
	_, err := down.DialAPI(t.Context())
	assert.Error(t, err, "a stream without a tunnel")
}

// One of two nodes dies, which calls went through.
func TestCalls_SetFailover(t *testing.T) {
	_, calls := callees(t)
	ca := tunneltest.NewCA(t)
	one, two := startPlane(t, ca, "127.0.0.1:0", calls), startPlane(t, ca, "127.0.0.1:0", calls)
	s := newSet(one)
	s.told(endpoints(one, two)...)
	s.await("both are up", func(status tunnel.SetStatus) bool {
		up, wanted := status.Up()
		return up == 2 && wanted == 2
	})
	mustAsk(t, caller(s), "hello")
	one.stop()
	s.await("one is down", func(status tunnel.SetStatus) bool {
		up, _ := status.Up()
		return up == 1
	})
	mustAsk(t, caller(s), "hello")
	two.stop()
	await.Until(t, "none is left", func() bool {
		_, err := s.DialAPI(t.Context())
		return err != nil
	})
}
