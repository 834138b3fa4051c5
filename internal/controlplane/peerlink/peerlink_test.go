package peerlink

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const domain = "pipeops.internal"

func newCA(t *testing.T) *ca.CA {
	t.Helper()
	c, err := ca.Open(filepath.Join(t.TempDir(), "ca.pem"), ca.Domains{Trust: domain, Agents: "agents." + domain}, ca.LogFunc(func(ca.Record) error { return nil }), time.Now)
	require.NoError(t, err)
	return c
}

// trusting is a TLS configuration with that certificate.
func trusting(c *ca.CA, cert func() (*tls.Certificate, error)) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		own, err := cert()
		if err != nil {
			return nil, err
		}
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*own}, RootCAs: c.PoolFor(ca.RoleControlPlane), ClientCAs: c.PoolFor(ca.RoleControlPlane)}, nil
	}
}

func peerCert(c *ca.CA, peer string) func() (*tls.Certificate, error) {
	return func() (*tls.Certificate, error) {
		return c.Peer(URI(domain, peer), ServerName(domain, peer), time.Hour)
	}
}

// startServer serves as peer b, until the test ends.
func startServer(t *testing.T, c *ca.CA, to Handover, change ...func(*ServerConfig)) (address string, limited *limit.Listener) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	limited = limit.Listen(ln, limit.Config{})
	cfg := ServerConfig{TrustDomain: domain, TLS: trusting(c, peerCert(c, "b")), Handover: to, Log: zerolog.Nop()}
	for _, f := range change {
		f(&cfg)
	}
	s := NewServer(cfg)
	await.Background(t, "the server", func(ctx context.Context) error { return s.Serve(ctx, limited) })
	return ln.Addr().String(), limited
}

func newClient(t *testing.T, c *ca.CA, cert func() (*tls.Certificate, error)) *Client {
	t.Helper()
	client := NewClient(ClientConfig{TrustDomain: domain, TLS: trusting(c, cert)})
	t.Cleanup(client.Close)
	return client
}

// runner is both ends of a Runner's connection.
func runner(t *testing.T) (near, far net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	near, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	far, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return near, far
}

// echo returns what sends back all that comes, until the test ends.
func echo(t *testing.T) func(context.Context, string, net.Conn) error {
	t.Helper()
	var echoing sync.WaitGroup
	t.Cleanup(echoing.Wait)
	return func(_ context.Context, _ string, conn net.Conn) error {
		echoing.Go(func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		})
		return nil
	}
}

// requireEcho checks that what is sent comes back.
func requireEcho(t *testing.T, conn net.Conn, sent []byte) {
	t.Helper()
	var writing sync.WaitGroup
	writing.Go(func() { _, _ = conn.Write(sent) })
	got := make([]byte, len(sent))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	writing.Wait()
	require.True(t, bytes.Equal(sent, got))
}

// noHandover fails the test when a connection to an agent is handed over.
func noHandover(t *testing.T) Handover {
	return func(context.Context, string, net.Conn) error {
		t.Error("it was let in")
		return server.ErrNotConnected
	}
}

func TestHandover_PassesConnection(t *testing.T) {
	c := newCA(t)
	var agent string
	var from net.Addr
	back := echo(t)
	address, limited := startServer(t, c, func(ctx context.Context, id string, conn net.Conn) error {
		agent, from = id, conn.RemoteAddr()
		return back(ctx, id, conn)
	})
	near, far := runner(t)
	require.NoError(t, newClient(t, c, peerCert(c, "a")).Handover(t.Context(), "b", address, "agent1", far))
	assert.Equal(t, "agent1", agent)
	assert.Equal(t, near.LocalAddr().String(), from.String())
	requireEcho(t, near, bytes.Repeat([]byte("0123456789abcdef"), 64<<10))
	require.NoError(t, near.Close())
	await.Until(t, "no connection is left", func() bool { return limited.Stats().Open == 0 })
}

// TestHandover_ReturnsError leaves the connection to the caller.
func TestHandover_ReturnsError(t *testing.T) {
	c := newCA(t)
	answers := map[string]error{"away": server.ErrNotConnected, "busy": server.ErrBusy, "broken": errors.New("secret detail")}
	address, _ := startServer(t, c, func(_ context.Context, id string, _ net.Conn) error { return answers[id] })
	client := newClient(t, c, peerCert(c, "a"))
	near, far := runner(t)
	require.ErrorIs(t, client.Handover(t.Context(), "b", address, "away", far), server.ErrNotConnected)
	require.ErrorIs(t, client.Handover(t.Context(), "b", address, "busy", far), server.ErrBusy)
	err := client.Handover(t.Context(), "b", address, "broken", far)
	require.ErrorContains(t, err, "it could not reach the agent")
	assert.NotContains(t, err.Error(), "secret")
	_, err = far.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(near, make([]byte, 1))
	require.NoError(t, err)
}

func TestPeerLink_VerifiesCertificates(t *testing.T) {
	c, stranger := newCA(t), newCA(t)
	address, limited := startServer(t, c, noHandover(t))
	spiffe := func(path string) *url.URL { return &url.URL{Scheme: "spiffe", Host: domain, Path: path} }
	for what, cert := range map[string]func() (*tls.Certificate, error){
		"another CA's":                        peerCert(stranger, "a"),
		"an agent's":                          func() (*tls.Certificate, error) { return c.Peer(spiffe("/agent/a"), "a", time.Hour) },
		"a Runner's":                          func() (*tls.Certificate, error) { return c.ControlPlane(spiffe("/runner/a"), time.Hour) },
		"the one that sends refresh requests": func() (*tls.Certificate, error) { return c.ControlPlane(spiffe("/controlplane"), time.Hour) },
		"one without a name":                  func() (*tls.Certificate, error) { return c.Peer(spiffe("/controlplane/"), "a", time.Hour) },
		"another trust domain's":              func() (*tls.Certificate, error) { return c.Peer(URI("example.org", "a"), "a", time.Hour) },
		"one that has ended":                  func() (*tls.Certificate, error) { return c.Peer(URI(domain, "a"), "a", -time.Minute) },
	} {
		_, far := runner(t)
		require.Error(t, newClient(t, c, cert).Handover(t.Context(), "b", address, "agent1", far), what)
	}
	_, far := runner(t)
	err := newClient(t, c, peerCert(c, "a")).Handover(t.Context(), "c", address, "agent1", far)
	require.ErrorContains(t, err, "certificate is valid for b.controlplane."+domain)
	err = newClient(t, stranger, peerCert(c, "a")).Handover(t.Context(), "b", address, "agent1", far)
	require.ErrorContains(t, err, "unknown authority")
	await.Until(t, "no connection is left", func() bool { return limited.Stats().Open == 0 })
}

func TestPeerLink_ClosesAttacks(t *testing.T) {
	c := newCA(t)
	address, limited := startServer(t, c, noHandover(t))
	target := hostile.Target{Addr: address, TLS: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.Pool(), ServerName: ServerName(domain, "b"), NextProtos: []string{alpn}}}
	left, err := target.LeftOpen(t.Context(), hostile.TLS(ServerName(domain, "b")), time.Minute, func([]byte) bool { return true })
	require.NoError(t, err)
	assert.Empty(t, left)
	await.Until(t, "no connection is left", func() bool { return limited.Stats().Open == 0 })
}

func TestReplica_Report(t *testing.T) {
	c := newCA(t)
	report := Replica{Name: "host-b", State: Degraded, Checks: []Check{{Name: "broker", Text: strings.Repeat("long ", 10_000)}, {Name: "ca", OK: true, Text: "valid"}}}
	address, limited := startServer(t, c, noHandover(t), func(cfg *ServerConfig) {
		cfg.Report = func(context.Context) Replica { return report }
	})
	client := newClient(t, c, peerCert(c, "a"))
	got, err := client.Replica(t.Context(), "b", address)
	require.NoError(t, err)
	assert.Equal(t, report, got)
	assert.Equal(t, []string{"broker: " + report.Checks[0].Text}, got.Wrong())
	await.Until(t, "no connection is left", func() bool { return limited.Stats().Open == 0 })
	_, err = client.Replica(t.Context(), "other", address)
	require.Error(t, err, "another control plane has that address")

	mute, _ := startServer(t, c, noHandover(t))
	_, err = client.Replica(t.Context(), "b", mute)
	require.Error(t, err)
}

// FuzzDecodeReplica reads what another control plane reports.
func FuzzDecodeReplica(f *testing.F) {
	text, err := json.Marshal(Replica{Name: "b", State: Degraded, Checks: []Check{{Name: "database", Text: "slow"}}})
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"checks":[[[[]]]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeReplica(text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(text), maxReplica)
		text, err = json.Marshal(r)
		require.NoError(t, err)
		again, err := decodeReplica(text)
		require.NoError(t, err)
		require.Equal(t, r.Wrong(), again.Wrong())
	})
}

func FuzzRequest(f *testing.F) {
	text, err := request{Public, "agent1", netip.MustParseAddrPort("[2001:db8::1]:443")}.encode()
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte{0, 0})
	f.Add(append([]byte{byte(Report)}, text[1:]...))
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bytes.NewReader(text)
		r, err := readRequest(in)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(text)-in.Len(), 2+2*maxName)
		again, err := r.encode()
		require.NoError(t, err)
		back, err := readRequest(bytes.NewReader(again))
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}

func TestPeerLink_PublicConnections(t *testing.T) {
	c, back := newCA(t), echo(t)
	address, _ := startServer(t, c, noHandover(t), func(cfg *ServerConfig) {
		cfg.Public = func(ctx context.Context, id string, conn net.Conn) error {
			if id == "away" {
				return server.ErrNotConnected
			}
			return back(ctx, id, conn)
		}
	})
	client := newClient(t, c, peerCert(c, "a"))
	_, err := client.DialPublic(t.Context(), "b", address, "away")
	require.ErrorIs(t, err, server.ErrNotConnected)
	conns := make([]net.Conn, 2)
	for i := range conns {
		conns[i], err = client.DialPublic(t.Context(), "b", address, "agent1")
		require.NoError(t, err)
		requireEcho(t, conns[i], []byte("hello"))
	}
	require.NoError(t, conns[0].Close())
	client.Close()
	_, err = conns[1].Read(make([]byte, 1))
	require.Error(t, err, "it ends with its Client")
}

func TestPeerLink_GatewayIsPublicOnly(t *testing.T) {
	c := newCA(t)
	link := func(seed byte) *Gateways {
		g, err := NewGateways(bytes.Repeat([]byte{seed}, 32), domain, time.Now)
		require.NoError(t, err)
		return g
	}
	peer, back := link(1), echo(t)
	address, _ := startServer(t, c, back, func(cfg *ServerConfig) {
		cfg.Public, cfg.GatewayTLS = back, func() (*tls.Config, error) { return peer.ForPeer("b") }
	})
	gateway := func(seed byte) *Client {
		client := NewClient(ClientConfig{TrustDomain: domain, TLS: link(seed).ForGateway})
		t.Cleanup(client.Close)
		return client
	}
	conn, err := gateway(1).DialPublic(t.Context(), "b", address, "agent1")
	require.NoError(t, err)
	requireEcho(t, conn, []byte("hello"))
	require.NoError(t, conn.Close())

	_, far := runner(t)
	require.Error(t, gateway(1).Handover(t.Context(), "b", address, "agent1", far), "the Runner API")
	_, err = gateway(1).Replica(t.Context(), "b", address)
	require.Error(t, err, "a control plane's report")
	_, err = gateway(2).DialPublic(t.Context(), "b", address, "agent1")
	require.Error(t, err, "another key")
	_, err = gateway(1).DialPublic(t.Context(), "a", address, "agent1")
	require.Error(t, err, "another control plane")
	_, err = newClient(t, c, peerCert(c, "a")).DialPublic(t.Context(), "b", address, "agent1")
	require.NoError(t, err, "control planes have their own certificates")
}
