package server_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

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
	if !strings.HasPrefix(p.addr, "[::1]:") {
		t.Fatalf("it listens at %s", p.addr)
	}
	proxy := proxytest.Start(t, proxytest.Config{Host: "::1", Account: "me:secret"})
	via, err := url.Parse(proxy.URL("me:secret"))
	if err != nil {
		t.Fatal(err)
	}
	for id, through := range map[string]*url.URL{"direct": nil, "proxied": via} {
		a := p.agent(id, func(c *tunnel.Config) {
			c.Proxy = func(*url.URL) (*url.URL, error) { return through, nil }
		})
		edge := listenOn(t, "[::1]:0")
		runner, err := new(net.Dialer).DialContext(t.Context(), "tcp", edge.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		at, err := edge.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = edge.Close()
		if err := p.Handover(t.Context(), id, at); err != nil {
			t.Fatal(err)
		}
		from := runner.LocalAddr().String()
		if seen := mustAsk(t, overConn(t, runner), "hello").Get("Remote"); seen != from {
			t.Errorf("the agent sees %s, not %s", seen, from)
		}
		if way := a.Status().Transport; way != tunnel.TCP {
			t.Errorf("by %q", way)
		}
	}
	if asked := proxy.Asked(); len(asked) != 1 || asked[0] != p.addr {
		t.Errorf("the proxy was asked for %v", asked)
	}
}

// overConn is a client that has this one connection.
func overConn(t *testing.T, conn net.Conn) *http.Client {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
