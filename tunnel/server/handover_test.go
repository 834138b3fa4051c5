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

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

// through has an agent connect by an HTTP proxy.
func through(t *testing.T, proxy string) func(*tunnel.Config) {
	t.Helper()
	via, err := url.Parse(proxy)
	require.NoError(t, err)
	return func(c *tunnel.Config) {
		address := c.ServerAddress
		c.Proxy = func(target *url.URL) (*url.URL, error) {
			assert.Equal(t, address, target.Host)
			return via, nil
		}
	}
}

// The tunnel, the proxies before it and the Runner have addresses of one family only.
func TestHandover_RemoteAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				t.Skipf("this machine has no such address: %v", err)
			}
			require.NoError(t, ln.Close())
			p := startPlane(t, tunneltest.NewCA(t), net.JoinHostPort(host, "0"))
			require.True(t, strings.HasPrefix(p.addr, net.JoinHostPort(host, "")), "it listens at %s", p.addr)
			open := proxytest.Start(t, proxytest.Config{Host: host})
			guarded := proxytest.Start(t, proxytest.Config{Host: host, Account: "me:secret"})
			for id, proxy := range map[string]func(*tunnel.Config){
				"direct": func(*tunnel.Config) {}, "open": through(t, "http://"+open.Address()), "guarded": through(t, guarded.URL("me:secret")),
			} {
				a := p.agent(id, proxy)
				p.handsOver(t, id, host)
				assert.Equal(t, tunnel.TCP, a.Status().Transport)
			}
			for _, proxy := range []*proxytest.Proxy{open, guarded} {
				assert.Equal(t, []string{p.addr}, proxy.Asked())
			}
		})
	}
}

// handsOver has a Runner call an agent over a connection that the server hands over.
func (p *plane) handsOver(t *testing.T, id, host string) {
	t.Helper()
	edge := listenOn(t, net.JoinHostPort(host, "0"))
	runner, err := new(net.Dialer).DialContext(t.Context(), "tcp", edge.Addr().String())
	require.NoError(t, err)
	at, err := edge.Accept()
	require.NoError(t, err)
	_ = edge.Close()
	require.NoError(t, p.Handover(t.Context(), id, at))
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return runner, nil }}
	from := runner.LocalAddr().String()
	header := mustAsk(t, &http.Client{Transport: transport, Timeout: patience}, "hello")
	assert.Equal(t, from, header.Get("Remote"), "the agent sees the Runner's address")
	await.Until(t, "the connection is in the stats", func() bool { // bytes are counted when they are through
		s := p.Stats()
		return s.Connections == 1 && s.BytesToAgents > 0 && s.BytesFromAgents > 0
	})
	transport.CloseIdleConnections()
	await.Until(t, "the connection is gone from the stats", func() bool { return p.Stats().Connections == 0 })
}
