// Package peers has the control planes that serve one database together: membership, leadership,
// the tunnels of each, and the way to an agent at another one.
package peers

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Peers is this control plane among those that serve one database. A nil one is alone.
type Peers struct {
	cfg         Config
	membership  *membership
	forwarder   *forwarder
	server      *peerlink.Server
	certificate *ca.ServerCertificate
	// edges holds the addresses that were announced to Runners. Each stays announced until its
	// time, even after its control plane has gone.
	edges map[string]time.Time
}

// Config is what a control plane needs to serve beside others.
type Config struct {
	Store *store.Store
	CA    *ca.CA
	// Self describes this control plane. Its ID is chosen by New.
	Self                      store.Peer
	AgentsDomain, TrustDomain string
	// Handover and Public connect others to the agents that have their tunnel here.
	Handover, Public func(ctx context.Context, agentID string, conn net.Conn) error
	// Report returns what this control plane reports of itself.
	Report func(ctx context.Context) peerlink.Replica
	// Gateways are the certificates of the link to gateways.
	Gateways *peerlink.Gateways
	// Move announces agents again that Runners reach at another edge.
	Move func(ctx context.Context, agents []store.Agent, edge string) error
	Log  zerolog.Logger
	Now  func() time.Time
}

// New returns a control plane that has not joined the others yet.
func New(cfg Config) *Peers {
	id, trust := strings.ToLower(rand.Text()), cfg.TrustDomain
	cfg.Self.ID = id
	p := &Peers{cfg: cfg, certificate: ca.NewPeerCertificate(cfg.CA, peerlink.URI(trust, id), peerlink.ServerName(trust, id)), edges: map[string]time.Time{}}
	p.membership = newMembership(cfg.Store, cfg.Self, cfg.Log, cfg.Now)
	config := func() (*tls.Config, error) {
		cert, err := p.certificate.Get(nil)
		if err != nil {
			return nil, err
		}
		others := cfg.CA.PoolFor(ca.RoleControlPlane)
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, RootCAs: others, ClientCAs: others, Time: cfg.Now,
		}, nil
	}
	p.forwarder = &forwarder{store: cfg.Store, self: id, own: cfg.Handover, link: peerlink.NewClient(peerlink.ClientConfig{TrustDomain: trust, TLS: config})}
	p.server = peerlink.NewServer(peerlink.ServerConfig{
		TrustDomain: trust, TLS: config, GatewayTLS: func() (*tls.Config, error) { return cfg.Gateways.ForPeer(id) }, Handover: cfg.Handover, Public: cfg.Public, Report: cfg.Report, Log: cfg.Log.With().Str("part", "peers").Logger(),
	})
	return p
}

// Join verifies that the other control planes have the same configuration, and registers this one.
func (p *Peers) Join(ctx context.Context) error {
	others, err := p.cfg.Store.Peers(ctx)
	if err != nil {
		return err
	}
	at, err := datadir.LoadAdvertised(ctx, p.cfg.Store)
	if err != nil && !errors.Is(err, datadir.ErrNeverServed) {
		return err
	}
	if len(others) > 0 && err == nil && (at.AgentsDomain != p.cfg.AgentsDomain || at.TrustDomain != p.cfg.TrustDomain) {
		return fmt.Errorf("the control planes that serve this database have the agents domain %s and the trust domain %s; give --agents-domain and --trust-domain as they have them",
			at.AgentsDomain, at.TrustDomain)
	}
	return p.membership.join(ctx)
}

// Run keeps the others informed, until the context ends.
func (p *Peers) Run(ctx context.Context) error { return p.membership.run(ctx) }

// Serve serves the other control planes.
func (p *Peers) Serve(ctx context.Context, ln net.Listener) error { return p.server.Serve(ctx, ln) }

// TunnelUp notes that an agent has its tunnel here.
func (p *Peers) TunnelUp(agentID string) { p.membership.tunnelUp(agentID) }

// TunnelDown notes that an agent has no tunnel here.
func (p *Peers) TunnelDown(agentID string) { p.membership.tunnelDown(agentID) }

// Handover implements edge.Handover: it connects a Runner to an agent at whichever control plane.
func (p *Peers) Handover(ctx context.Context, agentID string, conn net.Conn) error {
	return p.forwarder.handover(ctx, agentID, conn)
}

// DialPublic opens a stream of public traffic to an agent whose tunnel another control plane has.
func (p *Peers) DialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	return p.forwarder.dialPublic(ctx, agentID)
}

// Tunnels returns the endpoints that an agent must keep a tunnel to; none if the endpoint in its
// identity is the only one.
func (p *Peers) Tunnels(agentID string) []controlapi.TunnelEndpoint {
	if p == nil {
		return nil
	}
	return tunnelsFor(agentID, p.membership.all())
}

// Edge returns where Runners reach an agent that registers now; own is where this control plane
// accepts them.
func (p *Peers) Edge(own string) string {
	if p == nil {
		return own
	}
	var edges []string
	for _, n := range p.membership.all() {
		edges = append(edges, n.Edge)
	}
	return store.JoinEdges(edges)
}

// Advertised returns what is stored for the subcommands: the addresses at which all control planes,
// and not only this one, accept Runners.
func (p *Peers) Advertised(ctx context.Context, ours datadir.Advertised) (datadir.Advertised, error) {
	if p == nil {
		return ours, nil
	}
	at, err := datadir.LoadAdvertised(ctx, p.cfg.Store)
	if errors.Is(err, datadir.ErrNeverServed) {
		return ours, nil
	}
	ours.Edge = store.JoinEdges(append(store.SplitEdges(at.Edge), ours.Edge))
	return ours, err
}

// edgesKept is how long a control plane may be away before Runners no longer get its address. A
// restart is too short to announce it for every agent.
const edgesKept = 10 * time.Minute

// FollowEdges announces to Runners the addresses of all control planes when these change. If they
// share one address, that never happens.
func (p *Peers) FollowEdges(ctx context.Context) error {
	p.edges = map[string]time.Time{} // another control plane led meanwhile
	for ctx.Err() == nil {
		if err := p.tellEdges(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Log.Error().Err(err).Msg("failed to announce the control planes' addresses to Runners; retrying")
		}
		retry.Wait(ctx, peerRenew)
	}
	return nil
}

func (p *Peers) tellEdges(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	at, err := datadir.LoadAdvertised(ctx, p.cfg.Store)
	if err != nil {
		return err
	}
	now := time.Now()
	if len(p.edges) == 0 {
		for _, edge := range store.SplitEdges(at.Edge) {
			p.edges[edge] = now.Add(edgesKept)
		}
	}
	for _, n := range p.membership.all() {
		p.edges[n.Edge] = now.Add(edgesKept)
	}
	edges := make([]string, 0, len(p.edges))
	for edge, until := range p.edges {
		if now.After(until) {
			delete(p.edges, edge)
			continue
		}
		edges = append(edges, edge)
	}
	together := store.JoinEdges(edges)
	if at.Edge != together {
		at.Edge = together
		if err := datadir.SaveAdvertised(ctx, p.cfg.Store, at); err != nil {
			return err
		}
	}
	agents, err := p.cfg.Store.AgentsElsewhere(ctx, together)
	if err != nil {
		return err
	}
	return p.cfg.Move(ctx, agents, together)
}

// Close ends the connections that were forwarded to other control planes.
func (p *Peers) Close() {
	if p != nil {
		p.forwarder.link.Close()
	}
}

// Standing describes how many control planes there are.
func (p *Peers) Standing(leads bool) string {
	what := "another leads"
	if leads {
		what = "this one leads"
	}
	return fmt.Sprintf("%d serve the database, %s", len(p.membership.all()), what)
}
