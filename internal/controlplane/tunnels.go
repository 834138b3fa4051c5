package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peers"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// tunnels are those of all agents, at whichever control plane they are.
type tunnels struct {
	own      *server.Server // those to this control plane
	peers    *peers.Peers   // nil if there is only one control plane
	liveness *liveness.Liveness
	store    *store.Store
	log      zerolog.Logger
	look     wake.Signal // an agent may have been revoked
}

// newTunnels returns the agents' tunnels. Their server sends the CA only to agents that have none.
func (c *ControlPlane) newTunnels() (t *tunnels, err error) {
	t = &tunnels{peers: c.peers, liveness: c.liveness, store: c.store, log: c.cfg.Log, look: wake.New()}
	public := c.cfg.Gateway.Limits.WithDefaults()
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
		Limits: server.Limits{Public: public.Requests.PerAgent + public.Streams.PerAgent},
		Log:    c.cfg.Log.With().Str("part", "tunnel").Logger(),
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

// revocationAgain is the pause after which a failed look at the agents is repeated.
const revocationAgain = time.Second

// endRevoked closes tunnels of agents that were revoked, whenever the database has changed, until
// the context ends.
func (t *tunnels) endRevoked(ctx context.Context) error {
	for t.look.Wait(ctx) {
		for !t.dropRevoked(ctx) && retry.Wait(ctx, revocationAgain) {
			continue
		}
	}
	return nil
}

// dropRevoked closes the tunnels of agents that are revoked, or gone: an agent may be deleted as
// soon as it is revoked. It reports whether the agents could be read.
func (t *tunnels) dropRevoked(ctx context.Context) bool {
	held := t.own.Held()
	if len(held) == 0 {
		return true // one that comes later is refused
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	known, err := t.store.AgentNames(ctx)
	if err != nil {
		t.log.Error().Err(err).Msg("failed to read the list of revoked agents; retrying")
		return false
	}
	for _, id := range held {
		if _, there := known[id]; !there {
			t.log.Info().Str("agent", id).Msg("agent revoked; closing its tunnel")
			t.own.Disconnect(id)
		}
	}
	return true
}
