package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/clienthello"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// The hosts of a passingWorld that end TLS themselves.
const (
	passedHost     = "db.example.org"
	passedWildcard = "*.many.example.org"
)

// passingWorld is a world in which one host is served by HTTPS, and two end TLS themselves, in a
// server that repeats what it gets.
type passingWorld struct {
	*world
	pair  tls.Certificate
	trust *x509.CertPool
}

func newPassingWorld(t *testing.T, change ...func(*gateway.Config)) *passingWorld {
	t.Helper()
	w := &passingWorld{world: newWorld(t, nil, append([]func(*gateway.Config){func(c *gateway.Config) {
		c.Patience.Leave = 50 * time.Millisecond
	}}, change...)...)}
	var err error
	w.pair, w.trust, err = selfsigned.Pair(passedHost, passedWildcard)
	require.NoError(t, err)
	w.claim(passedHost, passedWildcard)
	w.behind(&tls.Config{MinVersion: tls.VersionTLS12}, nil)
	return w
}

// claim gives hosts to the agent, of which those that are named end TLS themselves.
func (w *passingWorld) claim(passed ...string) {
	w.t.Helper()
	now := time.Now()
	routes := []store.Route{{AgentID: "a1", Host: host, Path: "/", PathType: "Prefix", Namespace: "shop", App: "web", Service: "web", Port: 80, Since: now}}
	for _, name := range passed {
		routes = append(routes, store.Route{
			AgentID: "a1", Host: name, Path: "/", PathType: "Prefix", Namespace: "shop", App: "db", Service: "db", Port: 5432, Protocol: gatewaywire.TLS, Since: now,
		})
	}
	require.NoError(w.t, w.store.Update(w.t.Context(), func(tx *store.Tx) error {
		for _, name := range []string{passedHost, passedWildcard} {
			err := tx.PutClaim(w.t.Context(), store.HostClaim{AgentID: "a1", Host: name, Proof: hosts.CNAME, ProvenAt: now, ClaimedAt: now})
			if err != nil {
				return err
			}
		}
		return tx.PutRoutes(w.t.Context(), "a1", routes, store.RouteSet{Digest: strings.Join(passed, " "), At: now})
	}))
	require.NoError(w.t, w.table.Refresh(w.t.Context()))
	w.gateway.Follow()
}

// behind has the agent lead the hosts to a server with a TLS configuration.
func (w *passingWorld) behind(cfg *tls.Config, change func(*agentside.Route)) {
	w.t.Helper()
	cfg.Certificates = []tls.Certificate{w.pair}
	address := tcpServer(w.t, func(conn net.Conn) {
		secured := tls.Server(conn, cfg)
		_, _ = io.Copy(secured, secured)
		_ = secured.CloseWrite()
	})
	web := w.backend(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "web") }))
	routes := []agentside.Route{{Host: host, Path: "/", PathType: "Prefix", Addresses: []string{web}}}
	for _, name := range []string{passedHost, passedWildcard} {
		r := agentside.Route{Host: name, Protocol: gatewaywire.TLS, Port: 5432, Addresses: []string{address}}
		if change != nil {
			change(&r)
		}
		routes = append(routes, r)
	}
	w.handler.Set(routes)
}

// dialTCP connects to the port of HTTPS.
func (w *passingWorld) dialTCP() *net.TCPConn {
	w.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", w.secure.String())
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn.(*net.TCPConn)
}

// visit makes a handshake with a host's own server.
func (w *passingWorld) visit(name string, change ...func(*tls.Config)) (*tls.Conn, error) {
	w.t.Helper()
	cfg := &tls.Config{RootCAs: w.trust, ServerName: name, MinVersion: tls.VersionTLS12}
	for _, f := range change {
		f(cfg)
	}
	conn := tls.Client(w.dialTCP(), cfg)
	return conn, conn.HandshakeContext(w.t.Context())
}

// repeats expects that a connection leads to the server that repeats.
func (w *passingWorld) repeats(conn net.Conn) {
	w.t.Helper()
	_, err := conn.Write([]byte("hello"))
	require.NoError(w.t, err)
	got := make([]byte, 5)
	_, err = io.ReadFull(conn, got)
	require.NoError(w.t, err)
	assert.Equal(w.t, "hello", string(got))
}

func TestPassing_CertificateOfTheApp(t *testing.T) {
	w := newPassingWorld(t)
	for _, name := range []string{passedHost, "DB.example.ORG", "a.many.example.org"} {
		conn, err := w.visit(name)
		require.NoError(t, err, name)
		assert.Equal(t, w.pair.Certificate[0], conn.ConnectionState().PeerCertificates[0].Raw)
		w.repeats(conn)
		require.NoError(t, conn.CloseWrite())
		rest, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Empty(t, rest)
	}
	w.served(w.client(false))
	w.served(w.client(true))
}

func TestPassing_MutualTLS(t *testing.T) {
	w := newPassingWorld(t)
	client, pool, err := selfsigned.Pair("client.example.org")
	require.NoError(t, err)
	w.behind(&tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}, nil)
	conn, err := w.visit(passedHost, func(c *tls.Config) { c.Certificates = []tls.Certificate{client} })
	require.NoError(t, err)
	w.repeats(conn)

	conn, err = w.visit(passedHost)
	if err == nil { // the client learns of it later
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorContains(t, err, "certificate required")
}

// A request for the host reaches no App by a connection that the gateway ends.
func TestPassing_Misdirected(t *testing.T) {
	w := newPassingWorld(t)
	for _, http2 := range []bool{false, true} {
		r := request(t, http.MethodGet, "https://"+host+"/", nil)
		r.Host = passedHost
		resp, err := w.client(http2).Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
	}
	resp, err := w.client(false).Do(request(t, http.MethodGet, "http://"+passedHost+"/x", nil))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusPermanentRedirect, resp.StatusCode)
}

func TestPassing_HelloInPieces(t *testing.T) {
	w := newPassingWorld(t)
	conn := tls.Client(&pieces{w.dialTCP()}, &tls.Config{RootCAs: w.trust, ServerName: passedHost, MinVersion: tls.VersionTLS12})
	require.NoError(t, conn.HandshakeContext(t.Context()))
	w.repeats(conn)
}

// pieces is a connection that sends each byte by itself.
type pieces struct{ *net.TCPConn }

// Write implements io.Writer.
func (c *pieces) Write(p []byte) (int, error) {
	for i := range p {
		if _, err := c.TCPConn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

func TestPassing_NoHello(t *testing.T) {
	w := newPassingWorld(t, func(c *gateway.Config) { c.Patience.Header = 300 * time.Millisecond })
	slow := w.dialTCP()
	_, err := slow.Write(clienthello.Of(t, passedHost)[:20])
	require.NoError(t, err)
	_, err = slow.Read(make([]byte, 1))
	require.Error(t, err)

	plain := w.dialTCP()
	_, err = plain.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	answer, err := io.ReadAll(plain)
	require.NoError(t, err)
	assert.Contains(t, string(answer), " 400 ")

	for name, hello := range map[string][]byte{
		"huge": bytes.Repeat([]byte{0x16, 3, 1, 0x40, 0}, 10_000), "no name": clienthello.Of(t, "127.0.0.1"),
		"trailing dot": bytes.ReplaceAll(clienthello.Of(t, passedHost), []byte(passedHost), []byte("db.example.or.")),
	} {
		conn := w.dialTCP()
		_, _ = conn.Write(hello) // it may be refused before all is sent
		got, _ := io.ReadAll(conn)
		assert.NotContains(t, string(got), string(w.pair.Certificate[0]), name)
	}
	w.served(w.client(false))
}

func TestPassing_AllowFrom(t *testing.T) {
	w := newPassingWorld(t)
	from := func(network string) func(*agentside.Route) {
		return func(r *agentside.Route) { r.Visitors.AllowFrom = []netip.Prefix{netip.MustParsePrefix(network)} }
	}
	w.behind(&tls.Config{MinVersion: tls.VersionTLS12}, from("192.0.2.0/24"))
	_, err := w.visit(passedHost)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.NoError(t, w.gateway.Check(t.Context(), passedHost, "/"), "who is let in is the App's choice")

	w.behind(&tls.Config{MinVersion: tls.VersionTLS12}, from("127.0.0.0/8"))
	conn, err := w.visit(passedHost)
	require.NoError(t, err)
	w.repeats(conn)
}

// Connections end when the host is no longer the App's. The gateway then has no certificate of it.
func TestPassing_FollowsTheApp(t *testing.T) {
	w := newPassingWorld(t)
	conn, err := w.visit(passedHost)
	require.NoError(t, err)
	w.repeats(conn)
	other, err := w.visit("a.many.example.org")
	require.NoError(t, err)
	assert.NotContains(t, w.table.Hosts(), passedHost, "no certificate is ordered")
	assert.Contains(t, w.table.Hosts(), host)

	w.claim(passedWildcard)
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	w.repeats(other)

	w.claim()
	_, err = other.Read(make([]byte, 1))
	require.Error(t, err)
	w.served(w.client(true))
}

func TestPassing_Check(t *testing.T) {
	w := newPassingWorld(t)
	require.NoError(t, w.gateway.Check(t.Context(), passedHost, "/"))
	w.behind(&tls.Config{MinVersion: tls.VersionTLS12}, func(r *agentside.Route) { r.Addresses = nil })
	require.ErrorContains(t, w.gateway.Check(t.Context(), passedHost, "/"), "no pod of the App accepts connections")
	_, err := w.visit(passedHost)
	require.Error(t, err)
}

func TestPassing_StopsWithTheGateway(t *testing.T) {
	w := newPassingWorld(t)
	secure, ctx := listen(t), t.Context()
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	w.run(func(context.Context) error {
		stopped <- gateway.New(w.config).Serve(ctx, secure, nil)
		return nil
	})
	w.secure = secure.Addr()
	conn, err := w.visit(passedHost)
	require.NoError(t, err)
	w.repeats(conn)
	stop()
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, <-stopped)
}
