package way

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	v1 "github.com/fatedier/frp/pkg/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	public "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	tunnels "github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// The ways from a visitor to an App. On all but frp's, TLS ends in the relay: frps cannot end it.
const (
	GatewayTunnel = "gateway"
	GatewayDirect = "gateway-direct"
	GatewayFRP    = "gateway-frp"
	// Host and OtherHost are public.
	Host, OtherHost = "localhost", "other.localhost"
)

// ToApps returns the ways from a visitor to an App, which Place.Local is the address of.
func ToApps() []Way {
	return []Way{
		{GatewayDirect, "the gateway, which connects to the App", gatewayDirect, idle},
		{GatewayTunnel, "the gateway, tunnel and agent of this product", gatewayTunnel, gatewayAgent},
		{GatewayFRP, "stock frp v0.71.0: an https vhost, https2http at the agent", frpVhostRelay, frpVhostAgent},
	}
}

// idle is an agent that has nothing to do.
func idle(ctx context.Context, _ Place) error {
	<-ctx.Done()
	return nil
}

// App serves the load without TLS, as an App does.
func App(ctx context.Context, address string) error {
	ln, err := listen(ctx, address)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: load.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}

// Visitor returns a client that calls a host at an address, with connections of its own.
func Visitor(dir, address string, p Protocol) (*http.Client, error) {
	pool, err := roots(dir)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: Host, MinVersion: tls.VersionTLS13},
		Protocols:       new(http.Protocols), MaxIdleConnsPerHost: 1024, DisableCompression: true,
		ReadBufferSize: 64 << 10, WriteBufferSize: 64 << 10,
	}
	transport.Protocols.SetHTTP1(p == HTTP1)
	transport.Protocols.SetHTTP2(p == HTTP2)
	return &http.Client{Transport: transport}, nil
}

// gatewayDirect has the gateway connect to the App by itself.
func gatewayDirect(ctx context.Context, at Place) error {
	return serveGateway(ctx, at, func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at.Local)
	})
}

// gatewayTunnel has Runners' edge beside the gateway, at the first spare port.
func gatewayTunnel(ctx context.Context, at Place) error {
	secure, err := relayTLS(at.Dir)
	if err != nil {
		return err
	}
	srv, err := tunnels.New(tunnels.Config{TLS: secure, Identify: agentOf, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	agents, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	runners, err := listen(ctx, at.RelaySpare[0])
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.Serve(ctx, agents) })
	group.Go(func() error {
		return edge.New(edge.Config{Domain: domain, Handover: srv.Handover, Log: zerolog.Nop()}).Serve(ctx, runners)
	})
	group.Go(func() error { return serveGateway(ctx, at, srv.DialPublic) })
	return group.Wait()
}

func serveGateway(ctx context.Context, at Place, dial func(context.Context, string) (net.Conn, error)) error {
	cert, err := pair(at.Dir, relay)
	if err != nil {
		return err
	}
	table, err := Table(ctx, filepath.Join(at.Dir, fmt.Sprintf("routes-%x.db", at.Public)), map[string][]string{AgentID: {Host, OtherHost}})
	if err != nil {
		return err
	}
	ln, err := listen(ctx, at.Public)
	if err != nil {
		return err
	}
	return gateway.New(gateway.Config{
		Table: table.Table, Dial: dial, AgentName: func(id string) string { return id }, Log: zerolog.Nop(),
		TLS:     &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}},
		Metrics: gateway.NewMetrics(prometheus.NewRegistry(), "bench"),
	}).Serve(ctx, ln, nil)
}

// Routes are a gateway's table and the database that it follows.
type Routes struct {
	Table *gateway.Table
	Store *store.Store
}

// Table returns a table with proven hosts, by agent.
func Table(ctx context.Context, file string, of map[string][]string) (*Routes, error) {
	s, err := store.Open(ctx, file)
	if err != nil {
		return nil, err
	}
	r := &Routes{gateway.NewTable(s, time.Now), s}
	for id, names := range of {
		if err := s.InsertAgent(ctx, store.Agent{ID: id, Name: id, ClusterUID: id, State: "online", RegisteredAt: time.Now()}); err != nil {
			return nil, err
		}
		if err := r.Put(ctx, id, names...); err != nil {
			return nil, err
		}
	}
	return r, r.Table.Refresh(ctx)
}

// Put gives an agent further proven hosts, as its report and the check of DNS do.
func (r *Routes) Put(ctx context.Context, agentID string, names ...string) error {
	now := time.Now()
	return r.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutRoutes(ctx, agentID, nil, store.RouteSet{Digest: "bench", At: now}); err != nil {
			return err
		}
		for _, name := range names {
			if err := tx.PutClaim(ctx, store.HostClaim{AgentID: agentID, Host: name, Proof: hosts.CNAME, ClaimedAt: now, ProvenAt: now}); err != nil {
				return err
			}
		}
		return nil
	})
}

// gatewayAgent serves Runners and the public, as the agent does.
func gatewayAgent(ctx context.Context, at Place) error {
	secure, err := agentTLS(at.Dir)
	if err != nil {
		return err
	}
	tun, err := tunnel.New(tunnel.Config{
		ServerAddress: at.Via, ServerName: relayName, AgentID: AgentID, Instance: "bench", TakePublic: true,
		TLS: func(context.Context) (*tls.Config, error) { return secure, nil }, Log: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	handler := public.NewHandler(nil, zerolog.Nop())
	var routes []public.Route
	for _, name := range []string{Host, OtherHost} {
		routes = append(routes, public.Route{Host: name, Path: "/", PathType: "Prefix", Addresses: []string{at.Local}})
	}
	handler.Set(routes)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return tun.Run(ctx) })
	group.Go(func() error { return serve(ctx, tun.Listener(), at.Dir) })
	group.Go(func() error { return handler.Serve(ctx, tun.Public(), time.Second) })
	return group.Wait()
}

func frpVhostRelay(ctx context.Context, at Place) error {
	return serveFRP(ctx, at, func(cfg *v1.ServerConfig) {
		_, port := split(at.Public)
		cfg.VhostHTTPSPort = number(port)
	})
}

func frpVhostAgent(ctx context.Context, at Place) error {
	p := &v1.HTTPSProxyConfig{}
	p.Name, p.Type, p.CustomDomains = frpUser, string(v1.ProxyTypeHTTPS), []string{Host}
	p.Plugin = v1.TypedClientPluginOptions{Type: v1.PluginHTTPS2HTTP, ClientPluginOptions: &v1.HTTPS2HTTPPluginOptions{
		Type: v1.PluginHTTPS2HTTP, LocalAddr: at.Local, CrtPath: certFile(at.Dir, relay), KeyPath: keyFile(at.Dir, relay),
	}}
	return dialFRP(ctx, at, p)
}
