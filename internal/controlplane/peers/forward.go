package peers

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// Dialer opens streams of public traffic for a gateway, which has no tunnels.
type Dialer struct{ forwarder *forwarder }

// NewDialer returns a Dialer that connects to control planes by link.
func NewDialer(s *store.Store, link *peerlink.Client) *Dialer {
	return &Dialer{&forwarder{store: s, link: link}}
}

// DialPublic opens a stream to an agent at the control plane that has its tunnel.
func (d *Dialer) DialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	return d.forwarder.dialPublic(ctx, agentID)
}

// forwarder hands the Runners' connections to the control plane that has the agent's
// tunnel, if that is not this one.
type forwarder struct {
	store *store.Store
	self  string
	own   edge.Handover
	link  *peerlink.Client
	// known is where agents were last, for when the database is away.
	known sync.Map // of agent IDs to []store.Peer
}

// handover implements edge.Handover.
func (f *forwarder) handover(ctx context.Context, agentID string, conn net.Conn) error {
	err := f.own(ctx, agentID, conn)
	if !errors.Is(err, server.ErrNotConnected) {
		return err
	}
	peers, lookup := f.where(ctx, agentID)
	if lookup != nil {
		return lookup
	}
	for _, n := range peers {
		if n.ID == f.self {
			continue // what is written there is over
		}
		// An answer of another control plane is more useful than a failed connection.
		if next := f.link.Handover(ctx, n.ID, n.Peer, agentID, conn); next == nil || errors.Is(err, server.ErrNotConnected) {
			err = next
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// dialPublic opens a stream of public traffic to an agent whose tunnel another control plane has.
func (f *forwarder) dialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	peers, err := f.where(ctx, agentID)
	if err != nil {
		return nil, err
	}
	err = server.ErrNotConnected
	for _, n := range peers {
		if n.ID == f.self {
			continue // what is written there is over
		}
		conn, next := f.link.DialPublic(ctx, n.ID, n.Peer, agentID)
		if next == nil {
			return conn, nil
		}
		if err = next; ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

func (f *forwarder) where(ctx context.Context, agentID string) ([]store.Peer, error) {
	peers, err := f.store.PeersOf(ctx, agentID)
	switch known, was := f.known.Load(agentID); {
	case err == nil && len(peers) == 0:
		f.known.Delete(agentID)
	case err == nil:
		f.known.Store(agentID, peers)
	case was:
		return known.([]store.Peer), nil
	}
	return peers, err
}
