package controlplane

import (
	"context"
	"errors"
	"fmt"
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
			return c.tunnel.Handover(ctx, agentID, conn)
		},
		Public: func(ctx context.Context, agentID string, conn net.Conn) error {
			return c.tunnel.HandoverPublic(ctx, agentID, conn)
		},
		Report: c.report, Move: c.moveEndpoints, Log: c.cfg.Log, Now: c.cfg.Now,
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

// reach connects the edge to an agent.
func (c *ControlPlane) reach(ctx context.Context, agentID string, conn net.Conn) error {
	if c.peers == nil {
		return c.tunnel.Handover(ctx, agentID, conn)
	}
	return c.peers.Handover(ctx, agentID, conn)
}

// tunnelUp and tunnelDown implement the callbacks of server.Config.
func (c *ControlPlane) tunnelUp(agentID string) {
	if c.peers != nil {
		c.peers.TunnelUp(agentID)
		return
	}
	c.liveness.TunnelUp(agentID)
}

func (c *ControlPlane) tunnelDown(agentID string) {
	if c.peers != nil {
		c.peers.TunnelDown(agentID)
		return
	}
	c.liveness.TunnelDown(agentID)
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
