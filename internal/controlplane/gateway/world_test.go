package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const host = "www.example.org"

// attempt is how long one of several attempts may take.
const attempt = 10 * time.Second

// perPeer is how many connections of HTTP/3 one address may have.
const perPeer = 4

// world is a gateway with a certificate of its own CA, and an agent with a backend. Between the two
// are plain TCP connections in place of a tunnel's streams.
type world struct {
	t             *testing.T
	store         *store.Store
	table         *gateway.Table
	handler       *agentside.Handler
	registry      *prometheus.Registry
	secure, plain net.Addr
	packets       net.Addr        // of HTTP/3
	limited       *limit.Listener // counts connections of HTTP/3
	gateway       *gateway.Gateway
	config        gateway.Config // of gateway
	roots         *x509.CertPool
	root          []byte // of roots, in PEM

	mu      sync.Mutex
	dial    func(ctx context.Context, agentID string) (net.Conn, error)
	streams []net.Conn
}

func newWorld(t *testing.T, backend http.Handler, change ...func(*gateway.Config)) *world {
	t.Helper()
	return newWorldWith(t, agentside.NewHandler(nil, zerolog.Nop()), backend, change...)
}

// newWorldWith is newWorld with another handler at the agent.
func newWorldWith(t *testing.T, handler *agentside.Handler, backend http.Handler, change ...func(*gateway.Config)) *world {
	t.Helper()
	w := &world{t: t, store: openStore(t), registry: prometheus.NewRegistry(), handler: handler}
	now := time.Now()
	serves(t, w.store, "a1", now, hosts.CNAME, host)
	w.table = gateway.NewTable(w.store, time.Now)
	require.NoError(t, w.table.Refresh(t.Context()))
	agent := listen(t)
	w.run(func(ctx context.Context) error { return w.handler.Serve(ctx, agent, time.Second) })
	w.dial = func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", agent.Addr().String())
	}
	if backend != nil {
		w.lead(w.backend(backend))
	}
	storage := &webcerts.Storage{DB: w.store, Key: ca.NewKey(), Holder: "test", Now: time.Now}
	internal := &webcerts.Internal{Storage: storage, Now: time.Now}
	certs := webcerts.New(webcerts.Config{Storage: storage, Internal: internal, Log: zerolog.Nop(), Served: func(name string) string {
		if host, _ := w.table.Lookup(name); host != nil {
			return host.Name
		}
		return ""
	}})
	t.Cleanup(certs.Close)
	require.NoError(t, certs.Ensure(t.Context(), host)) // a handshake takes no longer for it
	root, err := internal.Root(t.Context())
	require.NoError(t, err)
	w.root, w.roots = root, x509.NewCertPool()
	require.True(t, w.roots.AppendCertsFromPEM(root))
	secure, plain := listen(t), listen(t)
	w.secure, w.plain = secure.Addr(), plain.Addr()
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	w.packets = packets.LocalAddr()
	cfg := gateway.Config{
		Table: w.table, TLS: certs.TLS(), HTTPSPort: secure.Addr().(*net.TCPAddr).Port, HTTP3Port: w.packets.(*net.UDPAddr).Port,
		Dial: func(ctx context.Context, agentID string) (net.Conn, error) {
			w.mu.Lock()
			dial := w.dial
			w.mu.Unlock()
			conn, err := dial(ctx, agentID)
			if err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.streams = append(w.streams, conn)
			return conn, nil
		},
		AgentName: func(id string) string { return "name of " + id }, Metrics: gateway.NewMetrics(w.registry, "test"), Log: zerolog.Nop(),
	}
	cfg.Patience.Start = time.Millisecond // tests that wait for it set it
	for _, f := range change {
		f(&cfg)
	}
	w.config, w.gateway = cfg, gateway.New(cfg)
	w.run(func(ctx context.Context) error { return w.gateway.Serve(ctx, secure, plain) })
	w.limited = limit.Listen(listen(t), limit.Config{PerPeer: perPeer, Log: zerolog.Nop()})
	t.Cleanup(func() { _ = w.limited.Close() })
	w.run(func(ctx context.Context) error { return w.gateway.ServeHTTP3(ctx, packets, w.limited.Enter) })
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// run runs a part until the test ends.
func (w *world) run(part func(context.Context) error) {
	await.Background(w.t, "a part", func(ctx context.Context) error {
		if err := part(ctx); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
}

func (w *world) backend(h http.Handler) string {
	w.t.Helper()
	return backend(w.t, h)
}

// backend serves, in HTTP/1.1 and HTTP/2 without TLS, and returns its address.
func backend(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// lead has the agent lead the host to addresses.
func (w *world) lead(addresses ...string) { w.leadTo(host, addresses...) }

// leadTo is lead for another host.
func (w *world) leadTo(name string, addresses ...string) {
	w.handler.Set([]agentside.Route{{Host: name, Path: "/", PathType: "Prefix", Addresses: addresses}})
}

// disconnect takes the agent's tunnel away.
func (w *world) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dial = func(context.Context, string) (net.Conn, error) { return nil, server.ErrNotConnected }
}

// cut ends the streams to the agent, and what the agent has open to backends without need.
func (w *world) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.streams {
		_ = conn.Close()
	}
	w.streams = nil
	w.handler.Close()
}

// served waits until a visitor gets an answer: a gateway with little patience may close a
// connection before a busy machine has used it.
func (w *world) served(c *http.Client) {
	w.t.Helper()
	await.Until(w.t, "a visitor is served", func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), attempt)
		defer cancel()
		resp, err := c.Do(request(w.t, http.MethodGet, "https://"+host+"/", nil).WithContext(ctx))
		return err == nil && resp.Body.Close() == nil
	})
}

// connect opens a connection by TLS for HTTP/1.
func (w *world) connect() net.Conn {
	w.t.Helper()
	cfg := &tls.Config{RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(w.t.Context(), "tcp", w.secure.String())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client returns a visitor with HTTP/1.1 or HTTP/2.
func (w *world) client(http2 bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12}, Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if _, port, _ := net.SplitHostPort(address); port == "80" {
				return (&net.Dialer{}).DialContext(ctx, network, w.plain.String())
			}
			return (&net.Dialer{}).DialContext(ctx, network, w.secure.String())
		},
		ExpectContinueTimeout: time.Minute,
	}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}
