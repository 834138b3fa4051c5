package controlplane

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// came is how many calls came by a way.
func (p *plane) came(way string) int {
	return int(testutil.ToFloat64(p.instruments.calls.WithLabelValues(way)))
}

// callThrough has a cluster's calls go through its tunnel.
func (c *cluster) callThrough(tun *tunnel.Tunnel) {
	c.t.Helper()
	client, err := controlapi.NewClient(controlapi.ClientConfig{
		URL: c.p.Advertised().API, TLS: c.tls.Load, Log: zerolog.Nop(), Now: c.p.clock.now, Retries: -1, Streams: tun, Origin: c.origin,
	})
	require.NoError(c.t, err)
	c.t.Cleanup(client.Close)
	c.client = client
}

func TestTunnelCalls_CarryTheAPI(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.registered("shop")
	tun, disconnect := c.connect()
	c.callThrough(tun)
	tun.Settle(t.Context())
	before := p.came(viaTLS)
	require.NoError(t, c.beat())
	require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{Events: nil}))
	_, err := c.client.PutRoutes(t.Context(), controlapi.RoutesRequest{})
	require.NoError(t, err)
	assert.Equal(t, 3, p.came(viaTunnel))
	assert.Equal(t, announce.StateOnline, p.state(c.id.AgentID))

	// A renewed certificate is used from the next call on, in the tunnel that was made with the
	// old one.
	key := selfsigned.Key(t)
	id, err := c.client.Renew(t.Context(), csr(t, key))
	require.NoError(t, err)
	assert.Equal(t, 4, p.came(viaTunnel))
	c.adopt(id, key)
	require.NoError(t, c.beat())
	assert.Equal(t, 5, p.came(viaTunnel))
	assert.Equal(t, before, p.came(viaTLS))
	stored, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.Equal(t, authn.KeyPrint(c.tls.Load().Certificates[0].Leaf), stored.Key)
	assert.Zero(t, tun.Status().Reconnects)

	disconnect()
	require.NoError(t, c.beat(), "without a tunnel")
	assert.Equal(t, before+1, p.came(viaTLS))
	tun, _ = c.connect()
	c.callThrough(tun)
	tun.Settle(t.Context())
	require.NoError(t, c.beat())
	assert.Equal(t, 6, p.came(viaTunnel))
}

// inTunnel calls as an agent does whose session has proven that, without a tunnel.
func (p *plane) inTunnel(c *cluster) *http.Client {
	proven := tls.ConnectionState{PeerCertificates: certs(c.leaf())}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p.api.inTunnels.take(there, proven)
		return here, nil
	}}}
}

func (p *plane) callInTunnel(c *cluster, method, path string) (status int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://control"+path, nil)
	require.NoError(p.t, err)
	req.Header.Set("Pipeops-Cluster", c.uid)
	resp, err := p.inTunnel(c).Do(req)
	require.NoError(p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(text)
}

// TestTunnelCalls_VerifyEachCall: the certificate expires, or the agent is revoked, while the
// session continues.
func TestTunnelCalls_VerifyEachCall(t *testing.T) {
	t.Parallel()
	p := start(t)
	c, other := p.registered("shop"), p.registered("other")
	check := func(c *cluster, status int, code controlapi.Code) {
		t.Helper()
		got, body := p.callInTunnel(c, http.MethodPost, "/v1/agent/check")
		assert.Equal(t, status, got)
		assert.Contains(t, body, code)
	}
	check(c, http.StatusNoContent, "")
	_, err := p.admin.Agents.Revoke(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	check(c, http.StatusForbidden, controlapi.CodeRevoked)
	check(other, http.StatusNoContent, "")
	p.clock.forward(48 * time.Hour)
	check(other, http.StatusUnauthorized, controlapi.CodeCertificateExpired)
}

func TestTunnelCalls_AgentAPIOnly(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := p.registered("shop")
	for _, path := range []string{
		"/", "/openapi.json", "/healthz", "/v1/agents/register", "/v1/tokens/check", "/v1/agent", "/v1/agent/../agents/register", "/v1/agent/nothing",
		server.WebsocketPath, announce.SnapshotPath, announce.AgentPath, announce.TimelinePath,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			status, _ := p.callInTunnel(c, method, path)
			assert.Equal(t, http.StatusNotFound, status, "%s %s", method, path)
		}
	}
}

// hurriedInTunnels serves calls with as little patience as a test has. What connects there is as if
// it came through a tunnel, whose agent has a certificate.
func hurriedInTunnels(t *testing.T, p *plane) hostile.Target {
	t.Helper()
	ln := loopback(t)
	proven := tls.ConnectionState{PeerCertificates: certs(p.registered("evil").leaf())}
	s := p.api.tunnelCallServer()
	serveHurried(t, s, func() error { return s.Serve(provenListener{ln, proven}) })
	return hostile.Target{Addr: ln.Addr().String()}
}

type provenListener struct {
	net.Listener
	proven tls.ConnectionState
}

// Accept implements net.Listener.
func (l provenListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tunnelCall{conn, l.proven}, nil
}

// TestTunnelCalls_EndAttacks: the attacker has a certificate and a tunnel.
func TestTunnelCalls_EndAttacks(t *testing.T) {
	t.Parallel()
	target := hurriedInTunnels(t, start(t))
	var attacks []hostile.Attack
	for _, a := range append(hostile.HTTP1("/v1/agent/heartbeat"), hostile.HTTP2("/v1/agent/heartbeat", 600)...) {
		a.Secure = false // the session is
		attacks = append(attacks, a)
	}
	left, err := target.LeftOpen(t.Context(), attacks, impatience, func(said []byte) bool { return !strings.Contains(string(said), "HTTP/1.1 200") })
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestWebsocketTunnel(t *testing.T) {
	p := start(t)
	assert.Equal(t, http.StatusUnauthorized, p.call(p.client(), http.MethodGet, server.WebsocketPath, "").StatusCode, "a stranger")
	c := p.registered("blocked")
	tun, _ := c.connect(func(cfg *tunnel.Config) { // its own port is not there
		cfg.ServerAddress, cfg.Websocket = "127.0.0.1:1", p.Advertised().API
	})
	await.Until(t, "the tunnel is up", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "the agent knows its way", func() bool { return tun.Status().Transport == tunnel.Websocket })

	c.answer(tun)
	got, err := p.throughEdge(c)
	require.NoError(t, err)
	assert.Equal(t, "I am blocked", got)
}

// TestIPv6_AllListeners: all that the control plane listens on is at [::1].
func TestIPv6_AllListeners(t *testing.T) {
	if ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		require.NoError(t, ln.Close())
	}
	p := start(t, func(cfg *Config) { cfg.APIListen, cfg.TunnelListen, cfg.EdgeListen = "[::1]:0", "[::1]:0", "[::1]:0" })
	told := p.Advertised()
	for name, where := range map[string]string{"api": strings.TrimPrefix(told.API, "https://"), "tunnel": told.Tunnel, "edge": told.Edge} {
		assert.True(t, strings.HasPrefix(where, "[::1]:"), "%s is advertised at %s", name, where)
	}
	c := p.registered("six")
	assert.Equal(t, told.Tunnel, c.id.Tunnel.Address)
	tun, _ := c.connect()
	await.Until(t, "the tunnel is up", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "the agent knows its way", func() bool { return tun.Status().Transport == tunnel.TCP })

	c.answer(tun)
	got, err := p.throughEdge(c)
	require.NoError(t, err)
	assert.Equal(t, "I am six", got)
}

func TestIPv6_AdvertisedAddresses(t *testing.T) {
	for advertised, good := range map[string]bool{"[2001:db8::1]:7000": true, "2001:db8::1": false, "[2001:db8::1]": false, "2001:db8::1:7000": false} {
		cfg := Config{DataDir: "x", AdvertiseTunnel: advertised, AdvertiseAPI: "https://[2001:db8::1]:8443"}
		cfg.setDefaults()
		err := cfg.Validate()
		assert.Equal(t, good, err == nil, "%s: %v", advertised, err)
		if good {
			assert.Contains(t, cfg.serverNames(), "2001:db8::1", "the certificate is for the address without brackets")
		}
	}
}
