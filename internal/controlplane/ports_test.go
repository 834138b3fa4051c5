package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

const portsDomain = "apps.example.com"

// withPorts has a gateway with these ports.
func withPorts(open ports.Set) func(*Config) {
	return func(c *Config) {
		c.Gateway = GatewayConfig{Domain: portsDomain, CA: GatewayInternal, HTTPSListen: "127.0.0.1:0", NoHTTP3: true, Ports: ports.Open{TCP: open, UDP: open}}
	}
}

// TestPorts_OwnListeners: a port at which the control plane listens itself is no App's.
func TestPorts_OwnListeners(t *testing.T) {
	c := Config{DataDir: t.TempDir(), TunnelListen: ":7000", EdgeListen: ":8444", MetricsListen: "127.0.0.1:9090"}
	c.Gateway = GatewayConfig{Domain: portsDomain, CA: GatewayInternal, Ports: ports.Open{TCP: ports.Set{5432, 7000, 8444, 9090}}}
	err := c.Validate()
	for _, text := range []string{"7000 is the port of --tunnel-listen", "8444 is the port of --edge-listen", "9090 is the port of --metrics-listen"} {
		require.ErrorContains(t, err, text)
	}
	assert.NotContains(t, err.Error(), "5432")
}

// freePorts returns ports of this machine on which nothing listens.
func freePorts(t *testing.T, n int) (open ports.Set) {
	t.Helper()
	for len(open) < n {
		_, text, err := net.SplitHostPort(freeport.Address(t))
		require.NoError(t, err)
		require.NoError(t, open.Set(open.String()+","+text))
	}
	return open
}

// portOf returns the route of an App's port 5432.
func portOf(c *cluster, app string, public int) controlapi.Route {
	return controlapi.Route{
		Host: controlapi.GivenHost(app, "n", c.id.AgentID, portsDomain), Path: "/", PathType: "Prefix", Namespace: "n", App: app, Service: app,
		Port: 5432, Ready: true, Protocol: gatewaywire.TCP, PublicPort: int32(public),
	}
}

// report sends routes, and returns what the agent is told of its ports.
func report(c *cluster, routes ...controlapi.Route) []controlapi.PortStatus {
	c.t.Helper()
	state, err := c.client.PutRoutes(c.t.Context(), controlapi.RoutesRequest{Routes: routes})
	require.NoError(c.t, err)
	return state.Ports
}

// udpPortOf is portOf for UDP.
func udpPortOf(c *cluster, app string, public int) controlapi.Route {
	r := portOf(c, app, public)
	r.Protocol = gatewaywire.UDP
	return r
}

// answersAt waits until a server of echo answers at a port of the gateway.
func answersAt(t *testing.T, port int32) {
	t.Helper()
	await.Until(t, "the App answers", func() bool {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write([]byte("x"))
		_, err = io.ReadFull(conn, make([]byte, 1))
		return err == nil
	})
}

// repeater returns the address of a server that returns what it gets.
func repeater(t *testing.T) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	await.Background(t, "a server", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return nil // the test has ended
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(conn, conn)
			}()
		}
	})
	return ln.Addr().String()
}

// TestPorts_WholeWay: a connection goes from the gateway's port through the tunnel to the App. A
// control plane that starts again gives the App the same port.
func TestPorts_WholeWay(t *testing.T) {
	open, dir := freePorts(t, 3), t.TempDir()
	p := start(t, withPorts(open), func(c *Config) { c.DataDir = dir })
	shop := p.registered("shop")
	host := controlapi.GivenHost("db", "n", shop.id.AgentID, portsDomain)
	handler := agentside.NewHandler(nil, zerolog.Nop())
	handler.Set([]agentside.Route{{Host: host, Protocol: gatewaywire.TCP, Port: 5432, Addresses: []string{repeater(t)}}})
	tun, _ := shop.connect(func(cfg *tunnel.Config) { cfg.TakePublic = true })
	await.Background(t, "the agent's end", func(ctx context.Context) error {
		_ = handler.Serve(ctx, tun.Public(), time.Second)
		return nil
	})
	given := report(shop, portOf(shop, "db", 0))
	require.Len(t, given, 1)
	assert.True(t, given[0].Served, given[0].Reason)
	assert.True(t, open.Has(int(given[0].PublicPort)), "the control plane chooses one of those that are open")
	answersAt(t, given[0].PublicPort)
	list := p.routes("shop")
	require.Len(t, list, 1)
	assert.Equal(t, "tcp://"+host+":"+strconv.Itoa(int(given[0].PublicPort)), list[0].URL)
	assert.True(t, list[0].Served)
	shown, err := p.admin.Agents.Get(t.Context(), "shop", 0)
	require.NoError(t, err)
	assert.Empty(t, shown.Agent.Hosts, "a port needs no certificate of a host")

	claims, err := p.store.PortClaims(t.Context())
	require.NoError(t, err)
	require.Len(t, claims, 1)
	assert.Equal(t, given, report(shop, portOf(shop, "db", 0), portOf(shop, "other", 0))[:1], "another App changes nothing")
	assert.Empty(t, report(shop))
	await.Until(t, "nothing listens", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(given[0].PublicPort))))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// TestPorts_BothProtocols: one number leads to an App by TCP and to another by UDP, through one
// tunnel.
func TestPorts_BothProtocols(t *testing.T) {
	open := freePorts(t, 1)
	p := start(t, withPorts(open))
	shop := p.registered("shop")
	host := func(app string) string { return controlapi.GivenHost(app, "n", shop.id.AgentID, portsDomain) }
	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	await.Background(t, "a server of UDP", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = packets.Close() })()
		for buffer := make([]byte, 1500); ; {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return nil // the test has ended
			}
			_, _ = packets.WriteTo(buffer[:n], from)
		}
	})
	handler := agentside.NewHandler(nil, zerolog.Nop())
	handler.Set([]agentside.Route{
		{Host: host("db"), Protocol: gatewaywire.TCP, Port: 5432, Addresses: []string{repeater(t)}},
		{Host: host("dns"), Protocol: gatewaywire.UDP, Port: 5432, Addresses: []string{packets.LocalAddr().String()}},
	})
	tun, _ := shop.connect(func(cfg *tunnel.Config) { cfg.TakePublic = true })
	await.Background(t, "the agent's end", func(ctx context.Context) error {
		_ = handler.Serve(ctx, tun.Public(), time.Second)
		return nil
	})
	for _, given := range report(shop, portOf(shop, "db", open[0]), udpPortOf(shop, "dns", open[0])) {
		assert.True(t, given.Served, given.Reason)
	}
	answersAt(t, int32(open[0]))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(open[0])))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	await.Until(t, "the App of UDP answers", func() bool {
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = conn.Write([]byte("x"))
		_, err := conn.Read(make([]byte, 1))
		return err == nil
	})
	urls := map[string]bool{}
	for _, r := range p.routes("shop") {
		urls[r.URL] = r.Served
	}
	at := ":" + strconv.Itoa(open[0])
	assert.Equal(t, map[string]bool{"tcp://" + host("db") + at: true, "udp://" + host("dns") + at: true}, urls)
	p.clock.forward(time.Second)
	told := report(p.registered("other"), udpPortOf(shop, "dns", open[0]))
	assert.Empty(t, told, "the host is another agent's")
}

// TestPorts_NotOfHTTP3: the port of HTTP/3 is no App's.
func TestPorts_NotOfHTTP3(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*GatewayConfig)
		refused string
	}{
		"its port":          {func(g *GatewayConfig) { g.Ports.UDP = ports.Set{443} }, "--gateway-udp-ports: 443 is the port of HTTP/3"},
		"the visitors' one": {func(g *GatewayConfig) { g.Ports.UDP, g.HTTPSPort = ports.Set{8443}, 8443 }, "--gateway-udp-ports: 8443 is the port of HTTP/3"},
		"without HTTP/3":    {func(g *GatewayConfig) { g.Ports.UDP, g.NoHTTP3 = ports.Set{443}, true }, ""},
		"another":           {func(g *GatewayConfig) { g.Ports.UDP = ports.Set{53} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, wrong := GatewayConfig{Domain: portsDomain}, ""
			g.setDefaults()
			c.change(&g)
			g.validate(func(format string, args ...any) { wrong += fmt.Sprintf(format, args...) })
			assert.Equal(t, c.refused == "", wrong == "", wrong)
			assert.Contains(t, wrong, c.refused)
		})
	}
}

// TestPorts_Conflict: the older claim keeps the port. The other agent is not told whose it is; the
// operator is.
func TestPorts_Conflict(t *testing.T) {
	open := freePorts(t, 3)
	p := start(t, withPorts(open))
	first, second := p.registered("first"), p.registered("second")
	assert.True(t, report(first, portOf(first, "db", open[0]))[0].Served)
	p.clock.forward(time.Second)
	told := report(second, portOf(second, "pg", open[0]))
	assert.False(t, told[0].Served)
	assert.Contains(t, told[0].Reason, "in use by another App")
	assert.NotContains(t, told[0].Reason, "db")
	list := p.routes("second")
	require.NotNil(t, list[0].HeldBy)
	assert.Equal(t, routes.Claimant{ID: first.id.AgentID, Name: "first", State: list[0].HeldBy.State, Namespace: "n", App: "db"}, *list[0].HeldBy)

	assert.Empty(t, report(first))
	state, err := second.client.Routes(t.Context())
	require.NoError(t, err)
	assert.True(t, state.Ports[0].Served, "it is free now")
}

// TestPorts_HostileReports: an agent gets no port that the operator has not opened, whatever it
// reports, and not all of those that are open.
func TestPorts_HostileReports(t *testing.T) {
	open := freePorts(t, 9)
	p := start(t, withPorts(open))
	shop, other := p.registered("shop"), p.registered("other")
	secure := port(p.listeners.https.Addr())
	for _, public := range []int{22, 80, 443, secure, 65535} {
		told := report(shop, portOf(shop, "db", public))
		assert.False(t, told[0].Served, public)
		assert.Contains(t, told[0].Reason, "has not opened port")
	}
	foreign := portOf(shop, "db", open[0])
	foreign.Host = controlapi.GivenHost("db", "n", other.id.AgentID, portsDomain)
	assert.Empty(t, report(shop, foreign), "the host is another agent's")

	many := make([]controlapi.Route, 0, controlapi.MaxRoutes)
	for i := range controlapi.MaxRoutes {
		many = append(many, portOf(shop, "a"+strconv.Itoa(i), 0))
	}
	served := 0
	for _, told := range report(shop, many...) {
		if told.Served {
			served++
		}
	}
	assert.Equal(t, 6, served, "at most twice as many as are free")
	p.clock.forward(time.Second)
	assert.True(t, report(other, portOf(other, "db", 0))[0].Served)

	wrong := portOf(shop, "db", 0)
	wrong.App = ""
	require.Error(t, putRoutes(shop, wrong))
	wrong = portOf(shop, "db", 0)
	wrong.Protocol = "SCTP"
	require.Error(t, putRoutes(shop, wrong))
	require.Error(t, putRoutes(shop, portOf(shop, "db", 0), portOf(shop, "db", 5432)), "the same port of an App twice")
}

// TestPorts_KeptOverRestart: the database has which App has which port.
func TestPorts_KeptOverRestart(t *testing.T) {
	open := freePorts(t, 4)
	p := start(t, withPorts(open))
	shop := p.registered("shop")
	report(shop, portOf(shop, "a", 0), portOf(shop, "b", 0))
	told := report(shop, portOf(shop, "b", 0))
	require.NotEqual(t, open[0], int(told[0].PublicPort), "a was first")
	p.stop()
	again := start(t, withPorts(open), func(c *Config) { c.DataDir, c.Database = p.cfg.DataDir, p.cfg.Database })
	list := again.routes("shop")
	require.Len(t, list, 1)
	assert.Equal(t, int(told[0].PublicPort), list[0].PublicPort)
	assert.True(t, list[0].Served)
}
