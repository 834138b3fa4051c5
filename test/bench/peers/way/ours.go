package way

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	public "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func oursRelay(ctx context.Context, at Place) {
	_, serve := edgeAndTunnel(ctx, at, at.Public)
	together(serve...)
}

// edgeAndTunnel returns edge and tunnel server, joined as the control plane joins them. Runners
// connect to their address.
func edgeAndTunnel(ctx context.Context, at Place, runners string) (*server.Server, []func() error) {
	tunnels := run.Must(server.New(server.Config{TLS: relayTLS(at.Dir), Identify: agentOf, Authorize: everyAgent, Log: zerolog.Nop()}))
	front := edge.New(edge.Config{Domain: domain, Handover: tunnels.Handover, Log: zerolog.Nop()})
	return tunnels, []func() error{
		func() error { return tunnels.Serve(ctx, listen(ctx, at.Tunnel)) },
		func() error { return front.Serve(ctx, listen(ctx, runners)) },
	}
}

func everyAgent(context.Context, string) error { return nil }

func agentOf(state tls.ConnectionState) (string, error) {
	for _, uri := range state.PeerCertificates[0].URIs {
		if id, ok := strings.CutPrefix(uri.Path, "/agent/"); ok {
			return id, nil
		}
	}
	return "", errors.New("no agent's certificate")
}

func oursAgent(ctx context.Context, at Place) {
	_, serve := agentEnd(ctx, at, false)
	together(serve...)
}

// agentEnd returns the agent's tunnel, as the agent makes it.
func agentEnd(ctx context.Context, at Place, public bool) (*tunnel.Tunnel, []func() error) {
	secure := agentTLS(at.Dir)
	tun := run.Must(tunnel.New(tunnel.Config{
		ServerAddress: at.Via, ServerName: relayName, AgentID: AgentID, Instance: "bench", TakePublic: public,
		TLS: func(context.Context) (*tls.Config, error) { return secure, nil }, Log: zerolog.Nop(),
	}))
	return tun, []func() error{
		func() error { return tun.Run(ctx) },
		func() error { return serve(tun.Listener(), at.Dir) },
	}
}

// The ways from a visitor to an App. On both, TLS ends in the relay.
const (
	GatewayTunnel = "gateway"
	GatewayDirect = "gateway-direct"
	// Host and OtherHost are public. Visitors of SignInHost sign in.
	Host, OtherHost, SignInHost = "localhost", "other.localhost", "signin.localhost"
)

// ToApps returns the ways from a visitor to an App, which Place.Local is the address of.
func ToApps() []Way {
	return []Way{
		{GatewayDirect, gatewayDirect, func(ctx context.Context, _ Place) { <-ctx.Done() }},
		{GatewayTunnel, gatewayTunnel, gatewayAgent},
	}
}

// gatewayDirect has the gateway connect to the App by itself.
func gatewayDirect(ctx context.Context, at Place) {
	run.Check(serveGateway(ctx, at, func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at.Local)
	}))
}

// gatewayTunnel has Runners' edge beside the gateway.
func gatewayTunnel(ctx context.Context, at Place) {
	tunnels, serve := edgeAndTunnel(ctx, at, at.Runners)
	together(append(serve, func() error { return serveGateway(ctx, at, tunnels.DialPublic) })...)
}

func serveGateway(ctx context.Context, at Place, dial func(context.Context, string) (net.Conn, error)) error {
	table := Table(ctx, filepath.Join(at.Dir, fmt.Sprintf("routes-%x.db", at.Public)), map[string][]string{AgentID: {Host, OtherHost, SignInHost}})
	return ServeTable(ctx, table, at, dial)
}

// ServeTable serves the hosts of a table at a place, until the context ends.
func ServeTable(ctx context.Context, table *Routes, at Place, dial func(context.Context, string) (net.Conn, error)) error {
	return gateway.New(gateway.Config{
		Table: table.Table, Dial: dial, AgentName: func(id string) string { return id }, Log: zerolog.Nop(),
		TLS:     &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair(at.Dir, relay)}, NextProtos: []string{"h2", "http/1.1"}},
		Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "bench"),
	}).Serve(ctx, listen(ctx, at.Public), nil)
}

// Routes are a gateway's table and the database that it follows.
type Routes struct {
	Table *gateway.Table
	Store *store.Store
}

// Table returns a table with proven hosts, by agent.
func Table(ctx context.Context, file string, of map[string][]string) *Routes {
	s := run.Must(store.Open(ctx, file))
	r := &Routes{gateway.NewTable(s, time.Now), s}
	for id, names := range of {
		run.Check(s.InsertAgent(ctx, store.Agent{ID: id, Name: id, ClusterUID: id, State: "online", RegisteredAt: time.Now()}))
		r.Put(ctx, id, names...)
	}
	run.Check(r.Table.Refresh(ctx))
	return r
}

// Put gives an agent further proven hosts, as its report and the check of DNS do.
func (r *Routes) Put(ctx context.Context, agentID string, names ...string) {
	now := time.Now()
	run.Check(r.Store.Update(ctx, func(tx *store.Tx) error {
		err := tx.PutRoutes(ctx, agentID, nil, store.RouteSet{Digest: "bench", At: now})
		for _, name := range names {
			if err == nil {
				err = tx.PutClaim(ctx, store.HostClaim{AgentID: agentID, Host: name, Proof: hosts.CNAME, ClaimedAt: now, ProvenAt: now})
			}
		}
		return err
	}))
}

// Replace has an agent report another host in place of one.
func (r *Routes) Replace(ctx context.Context, agentID, gone, name string) {
	run.Check(r.Store.Update(ctx, func(tx *store.Tx) error { return tx.DeleteClaim(ctx, agentID, gone) }))
	r.Put(ctx, agentID, name)
}

// gatewayAgent serves Runners and the public, as the agent does.
func gatewayAgent(ctx context.Context, at Place) {
	tun, serve := agentEnd(ctx, at, true)
	handler := public.NewHandler(nil, zerolog.Nop())
	var routes []public.Route
	for name, visitors := range map[string]public.Visitors{Host: {}, OtherHost: {}, SignInHost: {SignIn: signIn}} {
		routes = append(routes, public.Route{Host: name, Path: "/", PathType: "Prefix", Addresses: []string{at.Local}, Visitors: visitors})
	}
	handler.Set(routes)
	together(append(serve, func() error { return handler.Serve(ctx, tun.Public(), time.Second) })...)
}
