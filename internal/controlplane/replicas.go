package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// replicas holds the parts of a control plane that shares its database with others.
type replicas struct {
	node           *node
	sharedLiveness *sharedLiveness
	forwarder      *forwarder
	server         *peerlink.Server
	certificate    *ca.ServerCertificate
	// edges holds the addresses that were announced to Runners. Each stays announced until its
	// time, even after its control plane has gone.
	edges map[string]time.Time
}

// newReplicas creates the replicas from the parts that every control plane has.
func (c *ControlPlane) newReplicas() *replicas {
	id := strings.ToLower(rand.Text())
	trust := c.cfg.TrustDomain
	r := &replicas{certificate: ca.NewNodeCertificate(c.ca, peerlink.URI(trust, id), peerlink.ServerName(trust, id)), edges: map[string]time.Time{}}
	r.node = newNode(c.store, store.Node{
		ID: id, Version: c.cfg.Version, Peer: c.cfg.AdvertisePeer, Tunnel: c.cfg.AdvertiseTunnel, Edge: c.cfg.AdvertiseEdge, StartedAt: c.cfg.Now(),
	}, &c.cfg)
	r.sharedLiveness = &sharedLiveness{liveness: c.liveness, orphanGrace: c.cfg.StartGrace}
	config := func() (*tls.Config, error) {
		cert, err := r.certificate.Get(nil)
		if err != nil {
			return nil, err
		}
		others := c.ca.PoolFor(ca.RoleControlPlane)
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, RootCAs: others, ClientCAs: others, Time: c.cfg.Now,
		}, nil
	}
	own := func(ctx context.Context, agentID string, conn net.Conn) error {
		return c.tunnel.Handover(ctx, agentID, conn)
	}
	public := func(ctx context.Context, agentID string, conn net.Conn) error {
		return c.tunnel.HandoverPublic(ctx, agentID, conn)
	}
	r.forwarder = &forwarder{store: c.store, self: id, own: own, link: peerlink.NewClient(peerlink.ClientConfig{TrustDomain: trust, TLS: config})}
	r.server = peerlink.NewServer(peerlink.ServerConfig{
		TrustDomain: trust, TLS: config, Handover: own, Public: public, Log: c.cfg.Log.With().Str("part", "peers").Logger(),
	})
	return r
}

// listenPeers opens the port for other control planes, if there may be any.
func (c *ControlPlane) listenPeers(ctx context.Context) error {
	if !c.cfg.data().Shared() {
		return nil
	}
	ln, err := (&net.ListenConfig{KeepAliveConfig: peerlink.KeepAlive()}).Listen(ctx, "tcp", c.cfg.PeerListen)
	if err != nil {
		return fmt.Errorf("--peer-listen: %w; free the port or choose another with --peer-listen", err)
	}
	c.listeners.peer = c.cfg.limited(listenerPeer, ln)
	if c.cfg.AdvertisePeer != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(ln.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return errors.New("--advertise-peer: is missing; name host:port at which the other control planes reach this one, for example 10.0.0.4:8445")
	}
	c.cfg.AdvertisePeer = ln.Addr().String()
	return nil
}

// joinOthers verifies that the other control planes have the same configuration, and registers this
// one.
func (c *ControlPlane) joinOthers(ctx context.Context) error {
	if c.replicas == nil {
		return nil
	}
	others, err := c.store.Nodes(ctx)
	if err != nil {
		return err
	}
	at, err := loadAdvertised(ctx, c.store)
	if err != nil && !errors.Is(err, ErrNeverServed) {
		return err
	}
	if len(others) > 0 && err == nil && (at.AgentsDomain != c.cfg.AgentsDomain || at.TrustDomain != c.cfg.TrustDomain) {
		return fmt.Errorf("the control planes that serve this database have the agents domain %s and the trust domain %s; give --agents-domain and --trust-domain as they have them",
			at.AgentsDomain, at.TrustDomain)
	}
	return c.replicas.node.join(ctx)
}

// tunnels returns the endpoints that an agent must keep a tunnel to; none if the endpoint in its
// identity is the only one.
func (r *registry) tunnels(agentID string) []controlapi.TunnelEndpoint {
	if r.node == nil {
		return nil
	}
	return tunnelsFor(agentID, r.node.nodes())
}

// serveReplicas runs what serves the other control planes.
func (c *ControlPlane) serveReplicas(ctx context.Context, group *errgroup.Group) {
	r := c.replicas
	if r == nil {
		group.Go(func() error { return c.liveness.run(ctx) })
		return
	}
	group.Go(func() error { return c.liveness.keep(ctx) })
	group.Go(func() error { return r.node.run(ctx) })
	group.Go(func() error { return r.server.Serve(ctx, c.listeners.peer) })
	group.Go(func() error { return c.leader.while(ctx, r.sharedLiveness.run) })
	group.Go(func() error { return c.leader.while(ctx, c.followEdges) })
}

// reach connects the edge to an agent.
func (c *ControlPlane) reach(ctx context.Context, agentID string, conn net.Conn) error {
	if c.replicas == nil {
		return c.tunnel.Handover(ctx, agentID, conn)
	}
	return c.replicas.forwarder.handover(ctx, agentID, conn)
}

// tunnelUp and tunnelDown implement the callbacks of server.Config.
func (c *ControlPlane) tunnelUp(agentID string) {
	if c.replicas != nil {
		c.replicas.node.tunnelUp(agentID)
		return
	}
	c.liveness.tunnelUp(agentID)
}

func (c *ControlPlane) tunnelDown(agentID string) {
	if c.replicas != nil {
		c.replicas.node.tunnelDown(agentID)
		return
	}
	c.liveness.tunnelDown(agentID)
}

// edge returns where Runners reach an agent that registers now.
func (r *registry) edge() string {
	if r.node == nil {
		return r.cfg.AdvertiseEdge
	}
	var edges []string
	for _, n := range r.node.nodes() {
		edges = append(edges, n.Edge)
	}
	return joinEdges(edges)
}

// edgeSeparator separates several edges in one text.
const edgeSeparator = ","

func joinEdges(edges []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(edges))), edgeSeparator)
}

func edgesOf(text string) []string { return strings.Split(text, edgeSeparator) }

// advertised returns what is stored for the subcommands: the addresses at which all control planes,
// and not only this one, accept Runners.
func (c *ControlPlane) advertised(ctx context.Context) (Advertised, error) {
	ours := c.Advertised()
	if c.replicas == nil {
		return ours, nil
	}
	at, err := loadAdvertised(ctx, c.store)
	if errors.Is(err, ErrNeverServed) {
		return ours, nil
	}
	ours.Edge = joinEdges(append(edgesOf(at.Edge), ours.Edge))
	return ours, err
}

// edgesKept is how long a control plane may be away before Runners no longer get its address. A
// restart is too short to announce it for every agent.
const edgesKept = 10 * time.Minute

// followEdges announces to Runners the addresses of all control planes when these change. If they
// share one address, that never happens.
func (c *ControlPlane) followEdges(ctx context.Context) error {
	c.replicas.edges = map[string]time.Time{} // another control plane led meanwhile
	for ctx.Err() == nil {
		if err := c.tellEdges(ctx); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("Runners were not told where the control planes take them; trying again")
		}
		retry.Wait(ctx, nodeRenew)
	}
	return nil
}

func (c *ControlPlane) tellEdges(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at, err := loadAdvertised(ctx, c.store)
	if err != nil {
		return err
	}
	now, r := time.Now(), c.replicas
	if len(r.edges) == 0 {
		for _, edge := range edgesOf(at.Edge) {
			r.edges[edge] = now.Add(edgesKept)
		}
	}
	for _, n := range r.node.nodes() {
		r.edges[n.Edge] = now.Add(edgesKept)
	}
	edges := make([]string, 0, len(r.edges))
	for edge, until := range r.edges {
		if now.After(until) {
			delete(r.edges, edge)
			continue
		}
		edges = append(edges, edge)
	}
	together := joinEdges(edges)
	if at.Edge != together {
		at.Edge = together
		if err := saveAdvertised(ctx, c.store, at); err != nil {
			return err
		}
	}
	agents, err := c.store.AgentsElsewhere(ctx, together)
	if err != nil {
		return err
	}
	return c.moveEndpoints(ctx, agents, together)
}

// claim claims the database for this control plane alone, or together with others.
func (c *ControlPlane) claim(ctx context.Context) error {
	if c.cfg.data().Shared() {
		return c.store.ServeBeside(ctx)
	}
	return c.store.Serve(ctx)
}

// endForwards ends the connections that were forwarded to other control planes.
func (c *ControlPlane) endForwards() {
	if c.replicas != nil {
		c.replicas.forwarder.link.Close()
	}
}

// standing describes how many control planes there are.
func (r *replicas) standing(leads bool) string {
	what := "another leads"
	if leads {
		what = "this one leads"
	}
	return fmt.Sprintf("%d serve the database, %s", len(r.node.nodes()), what)
}

// AdvertisedPeer returns where the other control planes find this one; empty if there are none.
func (c *ControlPlane) AdvertisedPeer() string {
	if c.replicas == nil {
		return ""
	}
	return c.cfg.AdvertisePeer
}
