package controlplane

import (
	"context"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// newPeers prepares this control plane to serve beside others.
func (c *ControlPlane) newPeers() (*peers.Peers, error) {
	key, err := datadir.GatewayKey(c.cfg.data())
	if err != nil {
		return nil, err
	}
	gateways, err := linkOf(key, c.cfg.TrustDomain, c.cfg.Now)
	if err != nil {
		return nil, err
	}
	return peers.New(peers.Config{
		Gateways: gateways,
		Store:    c.store, CA: c.ca, AgentsDomain: c.cfg.AgentsDomain, TrustDomain: c.cfg.TrustDomain,
		Self: store.Peer{
			Version: c.cfg.Version, Peer: c.cfg.AdvertisePeer, Tunnel: c.cfg.AdvertiseTunnel, Edge: c.cfg.AdvertiseEdge, StartedAt: c.startedAt,
		},
		Handover: func(ctx context.Context, agentID string, conn net.Conn) error {
			return c.tunnels.own.Handover(ctx, agentID, conn)
		},
		Public: func(ctx context.Context, agentID string, conn net.Conn) error {
			return c.tunnels.own.HandoverPublic(ctx, agentID, conn)
		},
		Move: func(ctx context.Context, agents []store.Agent, to string) error {
			return c.directory.Move(ctx, c.store, agents, to, c.cfg.Now)
		},
		Report: c.report, Log: c.cfg.Log, Now: c.cfg.Now,
	}), nil
}

// linkOf returns the certificates of the link to gateways, for the key of gateways.
func linkOf(key ca.Key, trustDomain string, now func() time.Time) (*peerlink.Gateways, error) {
	link, err := key.Derive("peer link")
	if err != nil {
		return nil, err
	}
	return peerlink.NewGateways(link.Bytes(), trustDomain, now)
}

// servePeers runs what serves the other control planes.
func (c *ControlPlane) servePeers(ctx context.Context, group *errgroup.Group) {
	p := c.peers
	if p == nil {
		group.Go(func() error { return c.liveness.Run(ctx) })
		return
	}
	group.Go(func() error { return c.liveness.Keep(ctx) })
	group.Go(func() error { return p.Run(ctx) })
	group.Go(func() error { return p.Serve(ctx, c.listeners.peer) })
	group.Go(func() error { return c.leader.While(ctx, c.shared.Run) })
	group.Go(func() error { return c.leader.While(ctx, p.FollowEdges) })
}

// claim claims the database for this control plane alone, or together with others.
func (c *ControlPlane) claim(ctx context.Context) error {
	if c.cfg.data().Shared() {
		return c.store.ServeBeside(ctx)
	}
	return c.store.Serve(ctx)
}

// AdvertisedPeer returns where the other control planes find this one; empty if there are none.
func (c *ControlPlane) AdvertisedPeer() string {
	if c.peers == nil {
		return ""
	}
	return c.cfg.AdvertisePeer
}
