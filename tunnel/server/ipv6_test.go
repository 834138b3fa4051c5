package server_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

// The tunnel, a proxy before it and the Runner have [::1] only.
func TestTunnel_IPv6Only(t *testing.T) {
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	_ = ln.Close()
	p := startPlane(t, tunneltest.NewCA(t), "[::1]:0")
	require.True(t, strings.HasPrefix(p.addr, "[::1]:"), "it listens at %s", p.addr)
	proxy := proxytest.Start(t, proxytest.Config{Host: "::1", Account: "me:secret"})
	via, err := url.Parse(proxy.URL("me:secret"))
	require.NoError(t, err)
	for id, through := range map[string]*url.URL{"direct": nil, "proxied": via} {
		a := p.agent(id, func(c *tunnel.Config) {
			c.Proxy = func(*url.URL) (*url.URL, error) { return through, nil }
		})
		edge := listenOn(t, "[::1]:0")
		runner, err := new(net.Dialer).DialContext(t.Context(), "tcp", edge.Addr().String())
		require.NoError(t, err)
		at, err := edge.Accept()
		require.NoError(t, err)
		_ = edge.Close()
		require.NoError(t, p.Handover(t.Context(), id, at))
		from := runner.LocalAddr().String()
		assert.Equal(t, from, mustAsk(t, overConn(t, runner), "hello").Get("Remote"))
		assert.Equal(t, tunnel.TCP, a.Status().Transport)
	}
	asked := proxy.Asked()
	assert.True(t, len(asked) == 1 && asked[0] == p.addr, "the proxy was asked for %v", asked)
}

// overConn is a client that has this one connection.
func overConn(t *testing.T, conn net.Conn) *http.Client {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
