package way

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	public "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// The ways from a visitor to an App's port of TCP, and of UDP.
const (
	PortOurs    = "gateway-tcp"
	PortFRP     = "frp-tcp"
	PortDirect  = "direct-tcp" // the relay connects to the App by itself, as GatewayDirect does
	PacketsOurs = "gateway-udp"
	PacketsFRP  = "frp-udp"
)

// appPort is the port of the App's Service. Nothing listens there: the agent leads it to the App.
const appPort = 80

// ToPorts returns the ways to an App's port, which Place.Local is the address of.
func ToPorts() []Way {
	return []Way{
		{PortDirect, portDirect, func(ctx context.Context, _ Place) { <-ctx.Done() }},
		{PortOurs, portRelay(gatewaywire.TCP), portAgent(gatewaywire.TCP)},
		{PortFRP, frpRelay, frpPort},
	}
}

// ToPackets returns the ways to an App's port of UDP.
func ToPackets() []Way {
	return []Way{
		{PacketsOurs, portRelay(gatewaywire.UDP), portAgent(gatewaywire.UDP)},
		{PacketsFRP, frpRelay, frpPackets},
	}
}

// portDirect copies as the gateway does, without a tunnel.
func portDirect(ctx context.Context, at Place) {
	run.Check(limit.Accept(ctx, listen(ctx, at.Public), run.Check, func(visitor net.Conn) func() {
		return func() {
			app := run.Must(dialer.DialContext(ctx, "tcp", at.Local))
			gatewaywire.Relay(ctx, visitor, app, time.Hour, nil, nil)
		}
	}))
}

// Plain returns a client that calls an App at an address without TLS.
func Plain(address string) *http.Client {
	t := newTransport(address, dialer.DialContext)
	t.Protocols.SetHTTP1(true)
	return &http.Client{Transport: t}
}

// portRelay is a gateway with one public port of a protocol, at Place.Public.
func portRelay(protocol string) func(context.Context, Place) {
	return func(ctx context.Context, at Place) {
		tunnels, serve := edgeAndTunnel(ctx, at, at.Runners)
		together(append(serve, func() error { return servePort(ctx, at, protocol, tunnels.DialPublic) })...)
	}
}

func servePort(ctx context.Context, at Place, protocol string, dial func(context.Context, string) (net.Conn, error)) error {
	file, now := run.Must(store.Open(ctx, filepath.Join(at.Dir, protocol+"-ports.db"))), time.Now()
	table := gateway.NewTable(file, time.Now)
	open := ports.Set{number(at.Public)}
	table.SetOpen(ports.Open{TCP: open, UDP: open})
	run.Check(file.InsertAgent(ctx, store.Agent{ID: AgentID, Name: AgentID, ClusterUID: AgentID, State: "online", RegisteredAt: now}))
	run.Check(file.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutRoutes(ctx, AgentID, nil, store.RouteSet{Digest: "bench", At: now}); err != nil {
			return err
		}
		return tx.PutPortClaims(ctx, AgentID, []store.PortClaim{{
			Namespace: "bench", App: "app", Protocol: protocol, Port: appPort, Host: Host, Wanted: number(at.Public), ClaimedAt: now,
		}})
	}))
	run.Check(table.Refresh(ctx))
	g := gateway.New(gateway.Config{
		Table: table, Dial: dial, AgentName: func(id string) string { return id }, Log: zerolog.Nop(),
		TLS:     &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair(at.Dir, relay)}},
		Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "bench"),
		Listen: func(ctx context.Context, _ int) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", at.Public)
		},
		ListenUDP: func(ctx context.Context, _ int) (net.PacketConn, error) {
			return new(net.ListenConfig).ListenPacket(ctx, "udp", at.Public)
		},
	})
	host, _ := split(at.Public)
	return g.Serve(ctx, listen(ctx, net.JoinHostPort(host, "0")), nil) // no visitor comes by HTTPS
}

// portAgent leads the port to the App.
func portAgent(protocol string) func(context.Context, Place) {
	return func(ctx context.Context, at Place) {
		tun, serve := agentEnd(ctx, at, true)
		handler := public.NewHandler(nil, zerolog.Nop())
		handler.Set([]public.Route{{Host: Host, Protocol: protocol, Port: appPort, Addresses: []string{at.Local}}})
		together(append(serve, func() error { return handler.Serve(ctx, tun.Public(), time.Second) })...)
	}
}
