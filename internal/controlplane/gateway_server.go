package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// DefaultGatewayHealth is where a GatewayServer answers probes.
const DefaultGatewayHealth = ":8446"

// GatewayServerConfig configures a GatewayServer.
type GatewayServerConfig struct {
	// Database is the control planes', and Key the key of gateways: see datadir.GatewayKey.
	Database store.Postgres
	Key      ca.Key
	Gateway  GatewayConfig
	Limits   Limits
	// HealthListen is where probes are answered, plain HTTP.
	HealthListen, MetricsListen string
	Version                     string
	Log                         zerolog.Logger
	// Tracer makes spans of public requests; nil for none.
	Tracer trace.TracerProvider
	// Now returns the time; time.Now if nil.
	Now func() time.Time
}

// config returns what the gateway of a control plane reads, too.
func (c *GatewayServerConfig) config() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Gateway.Apart = false
	c.Gateway.setDefaults()
	c.Limits.setDefaults()
	return Config{Database: c.Database, Gateway: c.Gateway, Limits: c.Limits, Version: c.Version, Log: c.Log, Tracer: c.Tracer, Now: c.Now}
}

// Validate returns all mistakes.
func (c *GatewayServerConfig) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !c.Database.Given() {
		bad("--database: is missing; a gateway of its own needs the control planes' PostgreSQL")
	}
	if !c.Key.Given() {
		bad("--link-key-file: is missing; `pipeops-controlplane gateway key export` writes it")
	}
	if c.Gateway.Domain == "" {
		bad("--gateway-domain: is missing; set the domain that `serve` has")
	}
	c.Gateway.validate(bad)
	c.Gateway.refuseTaken(map[string]string{"--health-listen": c.HealthListen, flagMetrics: c.MetricsListen}, bad)
	c.Limits.validate(bad)
	return errors.Join(errs...)
}

// GatewayServer is a gateway as a separate process, beside control planes. It has no tunnel and
// no CA: it reads the routes and the certificates in the database, and reaches agents through the
// control planes.
type GatewayServer struct {
	cfg     Config
	store   *store.Store
	storage *webcerts.Storage
	link    *peerlink.Client
	public  *public
	ports   *metrics.Ports

	https, http, health net.Listener
	http3               net.PacketConn
	draining            atomic.Bool
}

// NewGatewayServer opens the database and the ports. Call Close if Run is not called.
func NewGatewayServer(ctx context.Context, cfg GatewayServerConfig) (*GatewayServer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	g := &GatewayServer{cfg: cfg.config()}
	if err := g.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *GatewayServer) open(ctx context.Context, cfg GatewayServerConfig) error {
	var err error
	if g.store, err = store.OpenPostgres(ctx, cfg.Database); err != nil {
		return err
	}
	at, err := datadir.LoadAdvertised(ctx, g.store)
	if err != nil {
		return err
	}
	certificates, err := linkOf(cfg.Key, at.TrustDomain, g.cfg.Now)
	if err != nil {
		return err
	}
	g.link = peerlink.NewClient(peerlink.ClientConfig{TrustDomain: at.TrustDomain, TLS: certificates.ForGateway})
	g.storage = datadir.NewGatewayStorage(g.store, cfg.Key, g.cfg.Now)
	if g.https, g.http, g.http3, err = listenPublic(ctx, &g.cfg); err != nil {
		return err
	}
	health, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HealthListen)
	if err != nil {
		return fmt.Errorf("--health-listen: %w; free the port or choose another with --health-listen", err)
	}
	g.health = g.cfg.limited("health", health)
	registry := metrics.NewRegistry(metricsNamespace, cfg.Version)
	if g.ports, err = metrics.Open(ctx, metrics.PortsConfig{Metrics: cfg.MetricsListen, MetricsName: flagMetrics, Gatherer: registry, Log: cfg.Log}); err != nil {
		return err
	}
	return g.assemble(ctx, gateway.NewMetrics(registry, metricsNamespace))
}

func (g *GatewayServer) assemble(ctx context.Context, m *gateway.Metrics) error {
	p := &public{store: g.store, metrics: m, table: gateway.NewTable(g.store, g.cfg.Now)}
	p.table.SetOpen(g.cfg.Gateway.Ports)
	g.public = p
	p.certs = newCertificates(&g.cfg, g.storage, p.table, g.https, g.http)
	if err := p.certs.ReadOwn(ctx); err != nil {
		return err
	}
	log := g.cfg.Log.With().Str("part", "gateway").Logger()
	names := discovery.NewNames(g.store)
	p.keeper = gateway.NewKeeper(gateway.Keeper{Table: p.table, Ensure: p.certs.Ensure, Covered: p.certs.Covered, Failures: g.store, Metrics: m, Log: log})
	p.follower = gateway.NewFollower(gateway.Follower{Table: p.table, Metrics: m, Log: log, Refreshed: func(ctx context.Context) {
		names.Refresh(ctx)
		p.gateway.Follow()
		p.keeper.Look()
	}})
	dialer := peers.NewDialer(g.store, g.link)
	p.gateway = newGateway(&g.cfg, p, names, dialer.DialPublic, publicPort(&g.cfg, g.https), g.http3 != nil, nil)
	return nil
}

// Addrs returns where the gateway listens. plain is nil without a port for HTTP.
func (g *GatewayServer) Addrs() (secure, plain, health net.Addr) {
	if g.http != nil {
		plain = g.http.Addr()
	}
	return g.https.Addr(), plain, g.health.Addr()
}

// Run serves until the context ends, lets requests finish, and closes what New opened.
func (g *GatewayServer) Run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	p := g.public
	p.serve(running, group, &sync.WaitGroup{}, g.https, g.http, g.http3)
	group.Go(func() error { return p.follower.Run(running) })
	group.Go(func() error { return p.readOwn(running, g.cfg.Log) })
	group.Go(func() error { return g.storage.Alone(running, "keeper", p.keeper.Run) })
	group.Go(func() error { return g.store.Watch(running, time.Second, p.follower.Look) })
	group.Go(func() error { return g.ports.Run(running) })
	group.Go(func() error { return g.serveHealth(running) })
	return errors.Join(retry.UnlessDone(ctx, group.Wait()), g.Close())
}

// serveHealth answers probes until the context ends.
func (g *GatewayServer) serveHealth(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serveHealth)
	mux.HandleFunc("GET /readyz", g.serveReady)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: handshakeTimeout, ReadTimeout: handshakeTimeout, WriteTimeout: handshakeTimeout, IdleTimeout: idleTimeout}
	stop := context.AfterFunc(ctx, func() {
		g.draining.Store(true)
		_ = srv.Close()
	})
	defer stop()
	if err := httpserver.Serve(srv, g.health); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (g *GatewayServer) serveReady(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	answer := readiness{Ready: true, Checks: map[string]string{}, ok: map[string]bool{}}
	counted, _ := g.https.(*limit.Listener)
	switch {
	case g.draining.Load():
		answer.set("gateway", true, false, "not serving")
	case counted.Stats().Failing:
		answer.set("gateway", true, false, "accepts no connections; look at the log")
	case !g.public.table.Known():
		answer.set("gateway", true, false, "the routes were not read yet")
	default:
		answer.set("gateway", true, true, fmt.Sprintf("%d hosts are served", g.public.table.Len()))
	}
	if err := g.store.Ping(ctx); err != nil {
		answer.set("database", false, false, "does not answer; the gateway continues with the routes that it knows")
	} else {
		answer.set("database", false, true, "answers")
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// Close closes what NewGatewayServer opened. Run calls it.
func (g *GatewayServer) Close() error {
	errs := []error{g.ports.Close()}
	for _, l := range []net.Listener{g.https, g.http, g.health} {
		if l != nil {
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
	}
	if g.http3 != nil {
		_ = g.http3.Close() // it may be closed
	}
	if g.link != nil {
		g.link.Close()
	}
	if g.public != nil {
		g.public.certs.Close()
	}
	if g.store != nil {
		errs = append(errs, g.store.Close())
	}
	return errors.Join(errs...)
}
