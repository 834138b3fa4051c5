package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// patience is how long a test waits for what should take milliseconds. Limits that no test waits
// for are as long.
const patience = 3 * time.Minute

// TestMain finds goroutines that the tests left behind, other than those that imported
// packages start by themselves.
func TestMain(m *testing.M) {
	if os.Getenv(stockEnv) != "" {
		runStockFRPC()
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// testLog shows logs with TUNNEL_TEST_LOG=1.
func testLog() zerolog.Logger {
	if os.Getenv("TUNNEL_TEST_LOG") == "" {
		return zerolog.Nop()
	}
	return zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "05.000"}).With().Timestamp().Logger()
}

// plane is a control plane's end and what it was told.
type plane struct {
	*server.Server
	t    testing.TB
	ca   *tunneltest.CA
	addr string
	stop func()

	mu      sync.Mutex
	news    []string
	revoked map[string]error
}

func newPlane(t testing.TB, change ...func(*server.Config)) *plane {
	t.Helper()
	return startPlane(t, tunneltest.NewCA(t), "127.0.0.1:0", change...)
}

// startPlane serves on addr, so that a restarted one is found in the same place.
func startPlane(t testing.TB, ca *tunneltest.CA, addr string, change ...func(*server.Config)) *plane {
	t.Helper()
	p := &plane{t: t, ca: ca, revoked: make(map[string]error)}
	cfg := server.Config{
		TLS:      ca.Server(),
		Identify: tunneltest.Identify,
		Authorize: func(_ context.Context, id string) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.revoked[id]
		},
		OnUp:   func(id string) { p.note("up " + id) },
		OnDown: func(id string) { p.note("down " + id) },
		Log:    testLog(),
		// None of these ends by chance what a busy machine is slow with.
		Limits: server.Limits{HandshakeTimeout: patience, DialTimeout: patience, HedgeAfter: patience},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := server.New(cfg)
	require.NoError(t, err)
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
	require.NoError(t, err)
	p.Server, p.addr = s, ln.Addr().String()
	p.stop = await.Background(t, "the server", func(ctx context.Context) error { return s.Serve(ctx, ln) })
	return p
}

func (p *plane) note(news string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news = append(p.news, news)
}

func (p *plane) told() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.news, ", ")
}

func (p *plane) revoke(id string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revoked[id] = err
}

// agent is an agent's end with an HTTP server behind it.
type agent struct {
	*tunnel.Tunnel
	instance string
	stop     func() error
}

func (p *plane) agent(id string, change ...func(*tunnel.Config)) *agent {
	p.t.Helper()
	a := p.bareAgent(id, change...)
	serve(p.t, a.Listener(), echo{a.instance})
	a.waitFor(p.t, tunnel.Connected)
	await.Until(p.t, "the agent is online, and that was told", func() bool {
		return p.Connected(id) && strings.Contains(p.told(), "up "+id)
	})
	return a
}

// bareAgent runs a tunnel without a server behind it and does not wait.
func (p *plane) bareAgent(id string, change ...func(*tunnel.Config)) *agent {
	p.t.Helper()
	certificate := p.ca.Agent(id)
	cfg := tunnel.Config{
		ServerAddress: p.addr, ServerName: tunneltest.ServerName, AgentID: id,
		TLS:     func(context.Context) (*tls.Config, error) { return certificate, nil },
		Backoff: tunnel.Backoff{Initial: 100 * time.Millisecond, Max: time.Second},
		Log:     testLog(),
	}
	for _, f := range change {
		f(&cfg)
	}
	t, err := tunnel.New(cfg)
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var result error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result = t.Run(ctx)
	}()
	a := &agent{Tunnel: t, instance: cfg.Instance, stop: func() error {
		cancel()
		await.Closed(p.t, done, "the agent to stop")
		return result
	}}
	p.t.Cleanup(func() { _ = a.stop() })
	return a
}

func (a *agent) waitFor(t testing.TB, phase tunnel.Phase) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		changed := a.Changed()
		if a.Status().Phase == phase {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("phase %s not reached: %+v", phase, a.Status())
		}
	}
}

// serve runs an HTTP server on a listener of an agent until the test ends.
func serve(t testing.TB, ln net.Listener, h http.Handler) {
	t.Helper()
	srv := &http.Server{Handler: h, ReadHeaderTimeout: patience, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		assert.NoError(t, srv.Close(), "close the agent's server")
		assert.ErrorIs(t, await.Receive(t, served, "the agent's server to stop"), http.ErrServerClosed)
	})
}

// echo answers with the request's body and what it saw of the connection.
type echo struct{ instance string }

func (e echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Instance", e.instance)
	w.Header().Set("Remote", r.RemoteAddr)
	w.Header().Set("Proto", r.Proto)
	body, err := io.ReadAll(r.Body) // HTTP/1.1 must not answer while it still reads
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = w.Write(body)
}

// client is an HTTP client whose connections are dialled through the tunnel.
func (p *plane) client(id string, protocols func(*http.Protocols)) *http.Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return p.Dial(ctx, id) },
		Protocols:   new(http.Protocols), MaxIdleConnsPerHost: 256,
	}
	protocols(transport.Protocols)
	p.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func http1(p *http.Protocols) { p.SetHTTP1(true) }
func http2(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }

// ask posts body and checks that it comes back.
func ask(ctx context.Context, client *http.Client, body string) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != body {
		err = errors.New("another answer than was asked for")
	}
	return resp.Header, err
}

func mustAsk(t testing.TB, client *http.Client, body string) http.Header {
	t.Helper()
	header, err := ask(t.Context(), client, body)
	require.NoError(t, err)
	return header
}
