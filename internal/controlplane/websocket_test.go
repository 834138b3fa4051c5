package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// blocked has a cluster's tunnel go over the HTTPS API, as its own port is not there.
func (c *cluster) blocked() *tunnel.Tunnel {
	c.t.Helper()
	tun, err := tunnel.New(tunnel.Config{
		ServerAddress: "127.0.0.1:1", AgentID: c.id.AgentID, Log: zerolog.Nop(), Cluster: func() string { return c.uid },
		TLS:       func(context.Context) (*tls.Config, error) { return c.tls.Load(), nil },
		Websocket: c.p.Advertised().API,
		Backoff:   tunnel.Backoff{Initial: 50 * time.Millisecond, Max: 200 * time.Millisecond},
	})
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tun.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		_ = await.Receive(c.t, done, "the end of the tunnel")
	})
	return tun
}

func TestWebsocketTunnel(t *testing.T) {
	p := start(t)
	c := p.cluster("blocked")
	require.NoError(t, c.register(p.token()))
	tun := c.blocked()
	await.Until(t, "the tunnel is up", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "the agent knows its way", func() bool { return tun.Status().Transport == tunnel.Websocket })

	// Runners come through the edge as to any other.
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.Addrs().Edge.String())
	require.NoError(t, err)
	defer func() { _ = raw.Close() }()
	go func() {
		_ = tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.id.ServerName}).HandshakeContext(context.Background())
	}()
	accepted, err := tun.Listener().Accept()
	require.NoError(t, err)
	require.NoError(t, accepted.Close())

	// Who is revoked is out, and is told that it is for good.
	_, err = p.admin.Agents.Revoke(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	await.Until(t, "the agent is refused", func() bool { return tun.Status().Phase == tunnel.Refused })
	assert.Contains(t, tun.Status().LastError, "revoked")
}

func TestWebsocketTunnel_RefusesStrangers(t *testing.T) {
	p := start(t)
	c := p.cluster("nobody") // not registered
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.Advertised().API+server.WebsocketPath, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls.Load()}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
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
	c := p.cluster("six")
	require.NoError(t, c.register(p.token()))
	assert.Equal(t, told.Tunnel, c.id.Tunnel.Address)
	tun, err := tunnel.New(tunnel.Config{
		ServerAddress: c.id.Tunnel.Address, ServerName: c.id.Tunnel.ServerName, AgentID: c.id.AgentID, Log: zerolog.Nop(), Cluster: func() string { return c.uid },
		TLS: func(context.Context) (*tls.Config, error) { return c.tls.Load(), nil },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- tun.Run(ctx) }()
	defer func() { cancel(); assert.NoError(t, await.Receive(t, done, "the end of the tunnel")) }()
	await.Until(t, "the tunnel is up", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "the agent knows its way", func() bool { return tun.Status().Transport == tunnel.TCP })

	runner, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", told.Edge)
	require.NoError(t, err)
	defer func() { _ = runner.Close() }()
	go func() {
		_ = tls.Client(runner, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: c.id.ServerName}).HandshakeContext(context.Background())
	}()
	accepted, err := tun.Listener().Accept()
	require.NoError(t, err)
	assert.Equal(t, runner.LocalAddr().String(), accepted.RemoteAddr().String(), "the agent sees who connects")
	require.NoError(t, accepted.Close())
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
