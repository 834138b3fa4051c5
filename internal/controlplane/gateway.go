package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// public has the parts of the gateway.
type public struct {
	domain   string
	now      func() time.Time
	store    *store.Store
	metrics  *gateway.Metrics
	table    *gateway.Table
	follower *gateway.Follower
	checker  *hosts.Checker
	keeper   *gateway.Keeper
	certs    *webcerts.Certificates
	events   *routes.Events
	modes    *routes.Modes
	resolver *hosts.Resolver
	health   publicHealth
	reach    *reach
	gateway  *gateway.Gateway
}

// certificateCheck is how often the files of the operator's certificate are looked at.
const certificateCheck = time.Minute

// openGateway opens the gateway's ports and assembles it, if there is one.
func (c *ControlPlane) openGateway(ctx context.Context) error {
	cfg := c.cfg.Gateway
	if cfg.Domain == "" {
		return nil
	}
	if !cfg.Apart {
		var err error
		if c.listeners.https, c.listeners.http, c.listeners.http3, err = listenPublic(ctx, &c.cfg); err != nil {
			return err
		}
	}
	storage, lost, err := datadir.CreateGatewayStorage(ctx, c.cfg.data(), c.store, c.cfg.Now)
	if err != nil {
		return err
	}
	if lost > 0 {
		c.cfg.Log.Warn().Int("files", lost).Msg("the gateway's key is missing in the data directory; removing the certificates that it encrypted and requesting new ones")
	}
	p := &public{domain: cfg.Domain, now: c.cfg.Now, store: c.store, metrics: c.instruments.gateway, table: gateway.NewTable(c.store, c.cfg.Now)}
	p.table.SetOpen(cfg.Ports)
	if cfg.Console {
		p.table.SetOwn(consoleLabel + cfg.Domain)
	}
	p.certs = newCertificates(&c.cfg, storage, p.table, c.listeners.https, c.listeners.http)
	c.public = p
	if err := p.certs.ReadOwn(ctx); err != nil {
		return err
	}
	resolver := &hosts.Resolver{Servers: cfg.Resolvers}
	if len(cfg.Resolvers) == 0 {
		if resolver, err = hosts.SystemResolver(); err != nil {
			return err
		}
	}
	p.resolver = resolver
	log := c.cfg.Log.With().Str("part", "gateway").Logger()
	names := discovery.NewNames(c.store)
	p.events = routes.NewEvents(c.store, p.table, c.cfg.Now, log)
	p.keeper = gateway.NewKeeper(gateway.Keeper{Table: p.table, Ensure: p.certs.Ensure, Covered: p.certs.Covered, Failures: c.store, Metrics: p.metrics, Log: log})
	p.follower = gateway.NewFollower(gateway.Follower{Table: p.table, Metrics: p.metrics, Log: log, Refreshed: func(ctx context.Context) {
		names.Refresh(ctx)
		if p.gateway != nil {
			p.gateway.Follow()
		}
		p.events.Look()
		p.keeper.Look()
	}})
	p.checker = hosts.NewChecker(hosts.Checker{
		Store: c.store, Resolver: resolver, Domain: cfg.Domain, Now: c.cfg.Now, Log: log, Changed: p.follower.Look,
	})
	if !cfg.Apart {
		p.gateway = newGateway(&c.cfg, p, names, c.tunnels.dialPublic, publicPort(&c.cfg, c.listeners.https), c.listeners.http3 != nil, c.api.pages())
		c.routes.Listens = p.listens
	}
	visited := p.gateway
	if visited == nil {
		visited = p.unserved(&c.cfg, names, c.tunnels.dialPublic)
	}
	p.reach = newReach(c.store, p.serves, visited.Check)
	c.routes.Reach = p.reach.of
	c.health.public = p
	c.routes.Certificate = p.certificate
	c.routes.OnRoutes = p.look
	return nil
}

// unserved returns a gateway without visitors, for checks of hosts that other processes serve.
func (p *public) unserved(c *Config, names *discovery.Names, dial func(context.Context, string) (net.Conn, error)) *gateway.Gateway {
	return gateway.New(gateway.Config{
		Direct: gateway.Direct{Mode: gateway.ModeTunnel}, Table: p.table, Dial: dial, TLS: p.certs.TLS(), AgentName: names.Of,
		Metrics: p.metrics, Log: c.Log.With().Str("part", "gateway").Logger(),
	})
}

// publicPort returns the port at which visitors reach the gateway.
func publicPort(c *Config, https net.Listener) int {
	if c.Gateway.HTTPSPort != 0 {
		return c.Gateway.HTTPSPort
	}
	return port(https.Addr())
}

// newGateway returns a gateway for what visitors reach at a port. own answers at its own host.
func newGateway(c *Config, p *public, names *discovery.Names, dial func(context.Context, string) (net.Conn, error), at int, http3 bool, own http.Handler) *gateway.Gateway {
	log := c.Log.With().Str("part", "gateway").Logger()
	p.modes = routes.NewModes(p.store, log)
	cfg := gateway.Config{
		Direct: gateway.Direct{
			Mode: c.Gateway.Mode, Allowed: c.Gateway.DirectAllow, Refused: c.Gateway.DirectDeny, Port: c.Gateway.DirectPort, Changed: p.modes.Look,
		},
		Table: p.table, Dial: dial, Own: own, TLS: p.certs.TLS(), Challenge: p.certs.Challenge(), HTTPSPort: at,
		Limits: c.Gateway.Limits, HSTS: c.Gateway.HSTS, AccessLog: c.Gateway.AccessLog, AgentName: names.Of, Metrics: p.metrics, Tracer: c.Tracer, Log: log,
	}
	if c.Gateway.Ports.Any() {
		cfg.Listen, cfg.ListenUDP = c.listenPort, c.listenFlows
	}
	if http3 {
		cfg.HTTP3Port = at
	}
	return gateway.New(cfg)
}

// newCertificates returns the gateway's certificates. The listeners are nil in a process that does
// not answer the public.
func newCertificates(c *Config, storage *webcerts.Storage, table *gateway.Table, https, http net.Listener) *webcerts.Certificates {
	cfg := c.Gateway
	made := webcerts.Config{
		Storage: storage, Directory: cfg.CA, Email: cfg.Email, Roots: cfg.CARoots, EAB: cfg.EAB,
		Own: cfg.Certificates, Wildcard: cfg.wildcard(), Log: c.Log.With().Str("part", "gateway").Logger(),
		Served: func(name string) string {
			if host, _ := table.Lookup(name); host != nil && host.Passed == 0 { // also one whose visitors get 503
				return host.Name
			}
			return ""
		},
		Orders: func(ctx context.Context, host string) bool { return ordersCertificate(ctx, storage.DB, table, host) },
	}
	if https != nil {
		made.HTTPSPort = port(https.Addr())
	}
	if http != nil {
		made.HTTPPort = port(http.Addr())
	}
	if cfg.CA == GatewayInternal {
		made.Internal = &webcerts.Internal{Storage: storage, Now: c.Now}
	}
	return webcerts.New(made)
}

// ordersCertificate reports whether a visitor's handshake may order the certificate of a host.
// After a failed attempt only the keeper tries again: CAs limit how many may fail. Of a wildcard's
// hosts visitors could name as many as they like.
func ordersCertificate(ctx context.Context, s *store.Store, table *gateway.Table, host string) bool {
	if !table.Named(host) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	_, err := s.CertificateFailure(ctx, host)
	return err != nil // without the database nothing can be ordered
}

// listens returns why the gateway does not listen at a port that an App has.
func (p *public) listens(protocol string, port int) string {
	if err := p.gateway.PortFailure(protocol, port); err != nil {
		return fmt.Sprintf("the gateway cannot listen at port %d of %s; have the operator look at the control plane's log", port, protocol)
	}
	return ""
}

// serves reports whether a host is served.
func (p *public) serves(host string) bool {
	_, served := p.table.Lookup(host)
	return served
}

// serveGateway runs the gateway, if there is one. users counts what needs tunnels.
func (c *ControlPlane) serveGateway(ctx context.Context, group *errgroup.Group, users *sync.WaitGroup) {
	p := c.public
	if p == nil {
		return
	}
	group.Go(func() error { return p.follower.Run(ctx) })
	group.Go(func() error { return p.watchHealth(ctx) })
	group.Go(func() error { return p.reach.Run(ctx) })
	group.Go(func() error { return c.leader.While(ctx, p.checker.Run) })
	group.Go(func() error { return c.leader.While(ctx, p.events.Run) })
	if c.cfg.Gateway.Apart {
		return
	}
	group.Go(func() error { return c.leader.While(ctx, p.keeper.Run) })
	p.serve(ctx, group, users, c.listeners.https, c.listeners.http, c.listeners.http3)
	group.Go(func() error { return p.readOwn(ctx, c.cfg.Log) })
}

// serve answers the public, and has the wildcard's certificate at hand. users counts what answers.
func (p *public) serve(ctx context.Context, group *errgroup.Group, users *sync.WaitGroup, https, http net.Listener, http3 net.PacketConn) {
	group.Go(func() error { return p.certs.RunWildcard(ctx) })
	group.Go(func() error { return p.modes.Run(ctx, p.gateway) })
	answer := func(serve func() error) {
		users.Add(1)
		group.Go(func() error {
			defer users.Done()
			return serve()
		})
	}
	answer(func() error { return p.gateway.Serve(ctx, https, http) })
	if http3 != nil {
		counted := https.(*limit.Listener) // one address has the same share of both
		answer(func() error { return p.gateway.ServeHTTP3(ctx, http3, counted.Enter) })
	}
}

// look wakes the follower of routes and the checker of hosts. Without a gateway it does nothing.
func (p *public) look() {
	if p != nil {
		p.follower.Look()
		p.checker.Look()
	}
}

// readOwn reads the operator's certificates again when they change.
func (p *public) readOwn(ctx context.Context, log zerolog.Logger) error {
	for retry.Wait(ctx, certificateCheck) {
		if err := p.certs.ReadOwn(ctx); err != nil {
			log.Error().Err(err).Msg("the gateway keeps the certificates that it has")
		}
	}
	return nil
}
