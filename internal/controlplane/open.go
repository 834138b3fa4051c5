package controlplane

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/agents"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/receiver"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
)

func open(ctx context.Context, cfg Config) (*ControlPlane, error) {
	c := &ControlPlane{cfg: cfg, startedAt: cfg.Now(), leader: peers.NewLeader()}
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *ControlPlane) open(ctx context.Context) error {
	err := c.cfg.data().Make()
	if err != nil {
		return err
	}
	if c.lock, err = c.cfg.data().Lock(); err != nil {
		return err
	}
	if c.store, err = c.cfg.data().OpenStore(ctx); err != nil {
		return err
	}
	if err := c.claim(ctx); err != nil {
		return err
	}
	domains := ca.Domains{Trust: c.cfg.TrustDomain, Agents: c.cfg.AgentsDomain}
	if c.ca, err = castore.Open(ctx, c.cfg.data(), c.store, domains, c.cfg.Now, true); err != nil {
		return err
	}
	if err := c.ca.Ended(); err != nil {
		return err
	}
	c.upkeep = castore.NewUpkeep(castore.Upkeep{
		CA: c.ca, Data: c.cfg.data(), Log: c.cfg.Log, Now: c.cfg.Now,
		Changed: func(ctx context.Context) { c.refresher.TellAll(ctx) },
	})
	if c.listeners, err = listen(ctx, &c.cfg); err != nil {
		return err
	}
	if err := c.listeners.listenPeer(ctx, &c.cfg); err != nil {
		return err
	}
	c.cfg.advertise(c.listeners.api.Addr(), c.listeners.tunnel.Addr(), c.listeners.edge.Addr())
	if err := datadir.CheckDomains(ctx, c.store, c.Advertised()); err != nil {
		return err
	}
	if err := c.upkeep.Ready(); err != nil {
		return err
	}
	seal, err := outbox.Seal(ctx, c.store)
	if err != nil {
		return err
	}
	if err := c.assemble(seal); err != nil { //nolint:contextcheck // handshakes have their own contexts
		return err
	}
	if err := c.openGateway(ctx); err != nil {
		return err
	}
	if c.ports, err = c.openPorts(ctx); err != nil {
		return err
	}
	if c.peers != nil {
		if err := c.peers.Join(ctx); err != nil {
			return err
		}
	}
	at, err := c.peers.Advertised(ctx, c.Advertised())
	if err != nil {
		return err
	}
	if err := datadir.SaveAdvertised(ctx, c.store, at); err != nil {
		return err
	}
	return c.openOperators(ctx)
}

// assemble connects the parts. Nothing runs yet.
func (c *ControlPlane) assemble(seal []byte) error {
	c.directory = discovery.Directory{AgentsDomain: c.cfg.AgentsDomain}
	c.certificate = ca.NewServerCertificate(c.ca, c.cfg.serverNames())
	c.clones = agents.NewClones(c.store, c.directory, c.cfg.Log, c.cfg.Now)
	c.authn = &authn.Authenticator{Store: c.store, CA: c.ca, TrustDomain: c.cfg.TrustDomain, Now: c.cfg.Now, Clones: c.clones, Log: c.cfg.Log}
	c.liveness = liveness.New(c.store, c.directory, liveness.Config{
		Log: c.cfg.Log, Now: c.cfg.Now, OfflineGrace: c.cfg.OfflineGrace, HeartbeatInterval: c.cfg.HeartbeatInterval,
	})
	var err error
	if c.cfg.data().Shared() {
		if c.peers, err = c.newPeers(); err != nil {
			return err
		}
		c.shared = liveness.NewShared(c.liveness, c.cfg.StartGrace)
	}
	c.view = discovery.NewView(c.store, c.directory, c.liveness.Seen)
	c.instruments = newInstruments(c.cfg.Version)
	c.outbox = outbox.New(c.store, c.cfg.Limits.Outbox, c.cfg.Log)
	c.webhooks = webhook.NewDispatcher(c.store, webhook.Options{
		TLS: c.cfg.WebhookTLS, UserAgent: "pipeops-controlplane/" + c.cfg.Version, Now: c.cfg.Now, Console: c.consoleURL,
		Tried: func(state store.DeliveryState) { c.instruments.webhooks.WithLabelValues(attempt(state)).Inc() },
	}, c.cfg.Log)
	c.openRegistries()
	if c.broker, err = outbox.NewBroker(c.store, outbox.BrokerConfig{
		URLs: c.cfg.BrokerURLs, TLS: c.cfg.BrokerTLS, Reread: c.cfg.BrokerReread, Seal: seal, Leader: c.leader,
		Measured: c.instruments.publisher, Log: c.cfg.Log, Now: c.cfg.Now,
	}); err != nil {
		return err
	}
	c.api = newAPI(&c.cfg, c.authn, c.view, c.certificate, c.instruments, backend{c.enrolment, c.fleet, c.routes, c.visitors})
	if c.tunnels, err = c.newTunnels(); err != nil {
		return err
	}
	c.refresher = agents.NewRefresher(c.store, c.ca, c.tunnels.own, c.directory, agents.RefresherConfig{
		TrustDomain: c.cfg.TrustDomain, Shared: c.peers != nil, AtATime: c.cfg.Limits.Refreshes, Log: c.cfg.Log, Now: c.cfg.Now,
		Refreshed: func(result string) { c.instruments.refreshes.WithLabelValues(result).Inc() },
	})
	c.receivers = receiver.New(receiver.Config{
		Store: c.store, LookUp: c.view.LookUp, Requested: c.refresher.Look, URL: c.publicURL, Now: c.cfg.Now, Log: c.cfg.Log,
	})
	c.api.receivers = c.receivers
	c.health = &health{
		outbox: c.outbox, liveness: c.liveness, broker: c.broker, ca: c.ca.Trust, certificate: c.certificate, tunnel: c.tunnels.own,
		peers: c.peers, leader: c.leader, serving: &c.serving, connections: c.Connections, log: c.cfg.Log, now: c.cfg.Now,
	}
	c.api.tunnel, c.api.ready = c.tunnels.own, http.HandlerFunc(c.health.serveReady)
	c.instruments.watch(c)
	return nil
}

// openRegistries connects what has the calls of agents.
func (c *ControlPlane) openRegistries() {
	heartbeats := max(1, int(c.cfg.HeartbeatInterval/time.Second))
	c.fleet = agents.New(c.store, c.ca.Trust, c.liveness, c.directory, c.clones, agents.Config{
		Heartbeats: heartbeats, Tunnels: c.peers.Tunnels, Shared: c.peers != nil, Console: c.consoleURL, VisitorSignIn: visitorsOf{c}.page,
		Audited: func(n int) { c.instruments.audited.Add(float64(n)) }, Log: c.cfg.Log, Now: c.cfg.Now,
	})
	c.enrolment = enrolment.New(c.store, c.ca, c.authn, c.directory, enrolment.Config{
		TrustDomain: c.cfg.TrustDomain, CertificateTTL: c.cfg.CertificateTTL, Heartbeats: heartbeats,
		Tunnel: peers.Endpoint(c.cfg.AdvertiseTunnel), Tunnels: c.peers.Tunnels,
		Edge: func() string { return c.peers.Edge(c.cfg.AdvertiseEdge) }, Log: c.cfg.Log, Now: c.cfg.Now,
		Record: func(ctx context.Context, j enrolment.Join, refused error, issue func(context.Context) error) error {
			return c.operators.RecordJoin(ctx, j, refused, issue) // they are opened later
		},
	})
	c.routes = routes.New(c.store, c.directory, c.cfg.Gateway.Domain, c.cfg.Gateway.Ports, c.cfg.Now)
	c.visitors = newVisitors(c)
}
