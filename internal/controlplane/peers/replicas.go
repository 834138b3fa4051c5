package peers

import (
	"context"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// reportTimeout bounds asking another control plane. It is longer than a readiness check, so that
// one whose database does not answer is not ready, and not unreachable.
const reportTimeout = 5 * time.Second

// Replicas asks all control planes that live what they report of themselves.
func (p *Peers) Replicas(ctx context.Context) []peerlink.Replica {
	live := p.membership.all()
	list := make([]peerlink.Replica, len(live))
	var asked sync.WaitGroup
	for i, peer := range live {
		asked.Go(func() { list[i] = p.replica(ctx, peer) })
	}
	asked.Wait()
	return list
}

func (p *Peers) replica(ctx context.Context, peer store.Peer) peerlink.Replica {
	found := p.ask(ctx, peer)
	// The database has these also of one that does not answer.
	found.ID, found.Version, found.StartedAt = peer.ID, peer.Version, peer.StartedAt
	found.Peer, found.Tunnel, found.Edge = peer.Peer, peer.Tunnel, peer.Edge
	return found
}

// ask returns what a control plane reports, or why it cannot be reached.
func (p *Peers) ask(ctx context.Context, peer store.Peer) peerlink.Replica {
	if peer.ID == p.cfg.Self.ID {
		own := p.cfg.Report(ctx)
		own.Answers = true
		return own
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	found, err := p.forwarder.link.Replica(ctx, peer.ID, peer.Peer)
	if err != nil {
		return peerlink.Replica{State: peerlink.Unreachable, Reason: err.Error(), Checks: []peerlink.Check{}}
	}
	return found
}
