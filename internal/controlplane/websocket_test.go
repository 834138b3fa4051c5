package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func TestWebsocketTunnel(t *testing.T) {
	p := start(t)
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

	// Who is revoked is out, and is told that it is for good.
	_, err = p.admin.Agents.Revoke(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	await.Until(t, "the agent is refused", func() bool { return tun.Status().Phase == tunnel.Refused })
	assert.Contains(t, tun.Status().LastError, "revoked")
}

func TestWebsocketTunnel_RefusesStrangers(t *testing.T) {
	p := start(t)
	p.get(p.client(), server.WebsocketPath, func(resp *http.Response) { assert.Equal(t, http.StatusUnauthorized, resp.StatusCode) })
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
