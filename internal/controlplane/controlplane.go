package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/metrics"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// ControlPlane is a whole control plane in one process. New creates one, Run runs it.
type ControlPlane struct {
	cfg         Config
	lock        *dirLock
	store       *store.Store
	ca          *ca.CA
	certificate *ca.ServerCertificate
	peers       *peers
	liveness    *liveness
	registry    *registry
	tunnel      *server.Server
	agents      http.Handler // what agents call
	calls       *callLimits
	inTunnels   *tunnelCalls
	refresher   *refresher
	outbox      *outbox
	broker      *messaging // nil if there is none
	webhooks    *webhook.Dispatcher
	instruments *instruments
	ports       *metrics.Ports
	listeners   listeners
	leader      *leader
	replicas    *replicas     // nil if there is only one control plane
	public      *public       // nil if there is no gateway
	caChanged   chan struct{} // a command may have changed the CA

	serving atomic.Bool
	closing sync.Once
	closed  error
}

// Addrs are the addresses on which a control plane listens.
type Addrs struct {
	API, Tunnel, Edge net.Addr
	Peer              net.Addr // nil if there is only one control plane
	// HTTPS and HTTP are the gateway's; nil if there is none.
	HTTPS, HTTP net.Addr
}

type listeners struct{ api, tunnel, edge, peer, https, http net.Listener }

// New opens the data directory, the database and the ports. Call Close if Run is not called.
func New(ctx context.Context, cfg Config) (*ControlPlane, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return awaitDatabase(ctx, cfg.Log, func() (*ControlPlane, error) { return open(ctx, cfg) })
}

func open(ctx context.Context, cfg Config) (*ControlPlane, error) {
	c := &ControlPlane{cfg: cfg, leader: newLeader(), caChanged: make(chan struct{}, 1)}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *ControlPlane) open(ctx context.Context) error {
	err := makeDataDir(c.cfg.DataDir)
	if err != nil {
		return err
	}
	if c.lock, err = lockDir(filepath.Join(c.cfg.DataDir, fileLock), servedAlready); err != nil {
		return err
	}
	if c.store, err = c.cfg.data().openStore(ctx); err != nil {
		return err
	}
	if err := c.claim(ctx); err != nil {
		return err
	}
	domains := ca.Domains{Trust: c.cfg.TrustDomain, Agents: c.cfg.AgentsDomain}
	if c.ca, err = c.cfg.data().openCA(ctx, c.store, domains, c.cfg.Now, true); err != nil {
		return err
	}
	if err := c.ca.Ended(); err != nil {
		return err
	}
	if c.listeners, err = listen(ctx, &c.cfg); err != nil {
		return err
	}
	if err := c.listenPeers(ctx); err != nil {
		return err
	}
	c.cfg.advertise(c.listeners.api.Addr(), c.listeners.tunnel.Addr(), c.listeners.edge.Addr())
	if err := checkDomains(ctx, c.store, c.Advertised()); err != nil {
		return err
	}
	if err := c.readyCA(); err != nil {
		return err
	}
	seal, err := sealOf(ctx, c.store)
	if err != nil {
		return err
	}
	if err := c.assemble(seal); err != nil { //nolint:contextcheck // handshakes have contexts of their own
		return err
	}
	if err := c.openGateway(ctx); err != nil {
		return err
	}
	if c.ports, err = c.openPorts(ctx); err != nil {
		return err
	}
	if err := c.joinOthers(ctx); err != nil {
		return err
	}
	at, err := c.advertised(ctx)
	if err != nil {
		return err
	}
	return saveAdvertised(ctx, c.store, at)
}

// assemble connects the parts. Nothing runs yet.
func (c *ControlPlane) assemble(seal []byte) error {
	d := directory{agentsDomain: c.cfg.AgentsDomain}
	c.certificate = ca.NewServerCertificate(c.ca, c.cfg.serverNames())
	c.peers = &peers{store: c.store, ca: c.ca, trustDomain: c.cfg.TrustDomain, now: c.cfg.Now, clones: newClones(c.store, d, &c.cfg)}
	c.liveness = newLiveness(c.store, d, &c.cfg)
	c.registry = &registry{store: c.store, ca: c.ca, peers: c.peers, liveness: c.liveness, directory: d, cfg: &c.cfg, duplicates: newDuplicates(c.cfg.Now), trust: &agentTrust{store: c.store}}
	if c.cfg.data().Shared() {
		c.replicas = c.newReplicas()
		c.registry.node = c.replicas.node
	}
	c.outbox = &outbox{store: c.store, limits: c.cfg.Limits.Outbox, log: c.cfg.Log, now: c.cfg.Now}
	c.instruments = newInstruments(c.cfg.Version)
	c.webhooks = webhook.NewDispatcher(c.store, webhook.Options{
		Roots: c.cfg.WebhookRoots, UserAgent: "pipeops-controlplane/" + c.cfg.Version, Now: c.cfg.Now,
		Tried: func(state store.DeliveryState) { c.instruments.webhooks.WithLabelValues(attempt(state)).Inc() },
	}, c.cfg.Log)
	var err error
	if c.broker, err = newMessaging(c.store, c.leader, c.outbox, seal, c.webhooks, &c.cfg); err != nil {
		return err
	}
	c.agents, c.calls, c.inTunnels = c.agentsAPI(), newCallLimits(c.peers, c.cfg.Limits.SharedAddresses), newTunnelCalls()
	c.tunnel, err = server.New(server.Config{
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13,
			GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				certificate := c.certificate.GetShort
				if server.WantsCA(hello) {
					certificate = c.certificate.Get
				}
				return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: certificate, ClientCAs: c.ca.PoolFor(ca.RoleAgent), Time: c.cfg.Now}, nil
			},
		},
		Identify: c.peers.agentOfTunnel, Admit: c.peers.admit,
		OnUp: c.tunnelUp, OnDown: c.tunnelDown, Calls: c.inTunnels.take,
		Log: c.cfg.Log.With().Str("part", "tunnel").Logger(),
	})
	c.refresher = &refresher{
		store: c.store, ca: c.ca, tunnel: c.tunnel, directory: d, trustDomain: c.cfg.TrustDomain, now: c.cfg.Now,
		log: c.cfg.Log, wake: make(chan struct{}, 1),
	}
	c.instruments.watch(c)
	return err
}

func listen(ctx context.Context, cfg *Config) (l listeners, err error) {
	for _, want := range []struct {
		to         *net.Listener
		name, addr string
	}{{&l.api, listenerAPI, cfg.APIListen}, {&l.tunnel, listenerTunnel, cfg.TunnelListen}, {&l.edge, listenerEdge, cfg.EdgeListen}} {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want.addr)
		if err != nil {
			return l, fmt.Errorf("--%[1]s-listen: %[2]w; free the port or choose another with --%[1]s-listen", want.name, err)
		}
		*want.to = cfg.limited(want.name, ln)
	}
	return l, nil
}

// Addrs returns the addresses on which the control plane listens.
func (c *ControlPlane) Addrs() Addrs {
	at := Addrs{API: c.listeners.api.Addr(), Tunnel: c.listeners.tunnel.Addr(), Edge: c.listeners.edge.Addr()}
	if c.listeners.peer != nil {
		at.Peer = c.listeners.peer.Addr()
	}
	if c.listeners.https != nil {
		at.HTTPS = c.listeners.https.Addr()
	}
	if c.listeners.http != nil {
		at.HTTP = c.listeners.http.Addr()
	}
	return at
}

// Advertised returns where agents and Runners find the control plane.
func (c *ControlPlane) Advertised() Advertised {
	return Advertised{
		API: c.cfg.AdvertiseAPI, Tunnel: c.cfg.AdvertiseTunnel, Edge: c.cfg.AdvertiseEdge,
		AgentsDomain: c.cfg.AgentsDomain, TrustDomain: c.cfg.TrustDomain, RunnerBroker: c.cfg.RunnerBroker, GatewayDomain: c.cfg.Gateway.Domain,
	}
}

// Run serves until the context ends, waits for everything that it started, and closes what New
// opened.
func (c *ControlPlane) Run(ctx context.Context) error {
	err := c.start(ctx)
	if err == nil {
		err = c.serve(ctx)
	}
	return errors.Join(unlessDone(ctx, err), c.Close())
}

// start restores the state of the last run.
func (c *ControlPlane) start(ctx context.Context) error {
	if err := c.refresher.begin(ctx); err != nil || c.replicas != nil { // else the leader does it
		return err
	}
	agents, err := c.store.Agents(ctx)
	if err != nil {
		return err
	}
	c.liveness.resume(agents, c.cfg.StartGrace)
	return c.moveEndpoints(ctx, agents, c.cfg.AdvertiseEdge)
}

// moveEndpoints announces the agents again if Runners reach them at another address.
func (c *ControlPlane) moveEndpoints(ctx context.Context, agents []store.Agent, to string) error {
	for _, a := range agents {
		if a.EdgeAddress == to || a.Revoked() {
			continue
		}
		err := c.store.Update(ctx, func(tx *store.Tx) error {
			current, err := tx.Agent(ctx, a.ID)
			if err != nil {
				return err
			}
			current.EdgeAddress = to
			return c.registry.directory.write(ctx, tx, announce.AgentUpdated, current, c.cfg.Now())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) serve(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	router := edge.New(edge.Config{Domain: c.cfg.AgentsDomain, Handover: c.reach, Log: c.cfg.Log})
	group.Go(func() error { return c.serveAPI(running, c.listeners.api) })
	group.Go(func() error { return c.tunnel.Serve(running, c.listeners.tunnel) })
	group.Go(func() error { return c.serveTunnelCalls(running) })
	group.Go(func() error {
		defer c.endForwards() // once nothing more can arrive
		return router.Serve(running, c.listeners.edge)
	})
	group.Go(func() error { return c.leader.run(running, c.store) })
	c.serveReplicas(running, group)
	c.serveGateway(running, group)
	group.Go(func() error {
		return c.store.Watch(running, time.Second, func() {
			c.dropRevoked(running)
			c.refresher.look()
			c.lookAtCA()
			c.lookAtRoutes()
			c.webhooks.Look()
		})
	})
	group.Go(func() error { return c.refresher.run(running) })
	group.Go(func() error { return c.leader.while(running, c.clean) })
	group.Go(func() error { return c.forgetDuplicates(running) })
	group.Go(func() error { return c.leader.while(running, c.webhooks.Run) }) // in one process at a time
	group.Go(func() error { return c.followCA(running) })
	group.Go(func() error { return c.leader.while(running, c.outbox.run) })
	group.Go(func() error { return c.ports.Run(running) })
	if c.broker != nil {
		group.Go(func() error { return c.broker.run(running) })
	}
	c.serving.Store(true)
	defer c.serving.Store(false)
	c.cfg.Log.Info().Str("api", c.cfg.AdvertiseAPI).Str("tunnel", c.cfg.AdvertiseTunnel).Str("edge", c.cfg.AdvertiseEdge).Msg("control plane is serving")
	return group.Wait()
}

// dropRevoked closes the tunnels of agents that another process revoked.
func (c *ControlPlane) dropRevoked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	revoked, err := c.store.RevokedAgents(ctx)
	if err != nil {
		c.cfg.Log.Error().Err(err).Msg("cannot read which agents are revoked")
		return
	}
	for _, id := range revoked {
		if c.tunnel.Connected(id) {
			c.cfg.Log.Info().Str("agent", id).Msg("agent was revoked: closing its tunnel")
			c.tunnel.Disconnect(id)
		}
	}
}

const (
	cleanEvery = time.Hour
	// receivedFor is how long an agent may take to resend an event.
	receivedFor = 7 * 24 * time.Hour
)

// clean deletes expired data.
func (c *ControlPlane) clean(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.store.ForgetReceived(ctx, c.cfg.Now().Add(-receivedFor)); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("old notes were not dropped")
		}
		if err := c.forgetCertificates(ctx, c.cfg.Now()); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("old records of certificates were not dropped")
		}
		if err := c.cleanIdentities(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("old enrolments and clones were not dropped")
		}
		retry.Wait(ctx, cleanEvery)
	}
	return nil
}

// Close closes what New opened. Run calls it; another call is harmless.
func (c *ControlPlane) Close() error {
	c.closing.Do(func() {
		errs := []error{c.ports.Close()}
		for _, l := range []net.Listener{c.listeners.api, c.listeners.tunnel, c.listeners.edge, c.listeners.peer, c.listeners.https, c.listeners.http} {
			if l == nil {
				continue
			}
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				errs = append(errs, err)
			}
		}
		if c.public != nil {
			c.public.certs.Close()
		}
		if c.store != nil {
			errs = append(errs, c.store.Close())
		}
		if c.lock != nil {
			errs = append(errs, c.lock.release())
		}
		c.closed = errors.Join(errs...)
	})
	return c.closed
}
