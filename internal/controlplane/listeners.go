package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
)

// Addrs are the addresses on which a control plane listens.
type Addrs struct {
	API, Tunnel, Edge net.Addr
	Peer              net.Addr // nil if there is only one control plane
	// HTTPS and HTTP are the gateway's; nil if there is none.
	HTTPS, HTTP net.Addr
}

type listeners struct {
	api, tunnel, edge, peer, https, http net.Listener
	http3                                net.PacketConn // nil if there is none
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

// listenPeer opens the port for other control planes, if there may be any.
func (l *listeners) listenPeer(ctx context.Context, cfg *Config) error {
	if !cfg.data().Shared() {
		return nil
	}
	ln, err := (&net.ListenConfig{KeepAliveConfig: peerlink.KeepAlive()}).Listen(ctx, "tcp", cfg.PeerListen)
	if err != nil {
		return fmt.Errorf("--peer-listen: %w; free the port or choose another with --peer-listen", err)
	}
	l.peer = cfg.limited(listenerPeer, ln)
	if cfg.AdvertisePeer != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(ln.Addr().String())
	if ip := net.ParseIP(host); err != nil || ip == nil || ip.IsUnspecified() {
		return errors.New("--advertise-peer: is missing; name host:port at which the other control planes reach this one, for example 10.0.0.4:8445")
	}
	cfg.AdvertisePeer = ln.Addr().String()
	return nil
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
func (c *ControlPlane) Advertised() datadir.Advertised {
	return datadir.Advertised{
		API: c.cfg.AdvertiseAPI, Tunnel: c.cfg.AdvertiseTunnel, Edge: c.cfg.AdvertiseEdge,
		AgentsDomain: c.cfg.AgentsDomain, TrustDomain: c.cfg.TrustDomain, RunnerBroker: c.cfg.RunnerBroker, GatewayDomain: c.cfg.Gateway.Domain,
		GatewayTCPPorts: c.cfg.Gateway.Ports.TCP.String(), GatewayUDPPorts: c.cfg.Gateway.Ports.UDP.String(),
	}
}

// close closes what Run has not closed.
func (l listeners) close() error {
	var errs []error
	for _, one := range []net.Listener{l.api, l.tunnel, l.edge, l.peer, l.https, l.http} {
		if one == nil {
			continue
		}
		if err := one.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if l.http3 != nil {
		if err := l.http3.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
