package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// tunnels are those of all agents, at whichever control plane they are.
type tunnels struct {
	own      *server.Server // those to this control plane
	peers    *peers.Peers   // nil if there is only one control plane
	liveness *liveness.Liveness
	store    *store.Store
	log      zerolog.Logger
}

// newTunnels returns the agents' tunnels. Their server sends the CA only to agents that have none.
func (c *ControlPlane) newTunnels() (t *tunnels, err error) {
	t = &tunnels{peers: c.peers, liveness: c.liveness, store: c.store, log: c.cfg.Log}
	t.own, err = server.New(server.Config{
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
		Identify: c.authn.AgentOfTunnel, Admit: c.authn.Admit,
		OnUp: t.up, OnDown: t.down, Calls: c.api.inTunnels.take,
		Log: c.cfg.Log.With().Str("part", "tunnel").Logger(),
	})
	return t, err
}

// reach connects the edge to an agent.
func (t *tunnels) reach(ctx context.Context, agentID string, conn net.Conn) error {
	if t.peers == nil {
		return t.own.Handover(ctx, agentID, conn)
	}
	return t.peers.Handover(ctx, agentID, conn)
}

// dialPublic opens a stream of public traffic to an agent.
func (t *tunnels) dialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	conn, err := t.own.DialPublic(ctx, agentID)
	if t.peers == nil || !errors.Is(err, server.ErrNotConnected) {
		return conn, err
	}
	return t.peers.DialPublic(ctx, agentID)
}

// up and down implement the callbacks of server.Config.
func (t *tunnels) up(agentID string) {
	if t.peers != nil {
		t.peers.TunnelUp(agentID)
		return
	}
	t.liveness.TunnelUp(agentID)
}

func (t *tunnels) down(agentID string) {
	if t.peers != nil {
		t.peers.TunnelDown(agentID)
		return
	}
	t.liveness.TunnelDown(agentID)
}

// dropRevoked closes the tunnels of agents that another process revoked.
func (t *tunnels) dropRevoked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	revoked, err := t.store.RevokedAgents(ctx)
	if err != nil {
		t.log.Error().Err(err).Msg("cannot read which agents are revoked")
		return
	}
	for _, id := range revoked {
		if t.own.Connected(id) {
			t.log.Info().Str("agent", id).Msg("agent was revoked: closing its tunnel")
			t.own.Disconnect(id)
		}
	}
}
