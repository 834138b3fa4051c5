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
	if peer.ID == p.cfg.Self.ID {
		own := p.report(ctx)
		own.Answers = true
		return own
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	found, err := p.forwarder.link.Replica(ctx, peer.ID, peer.Peer)
	if err != nil {
		found = peerlink.Replica{State: peerlink.Unreachable, Reason: err.Error(), Checks: []peerlink.Check{}}
	}
	describe(&found, peer)
	return found
}

// report returns what this control plane reports of itself.
func (p *Peers) report(ctx context.Context) peerlink.Replica {
	own := p.cfg.Report(ctx)
	describe(&own, p.cfg.Self)
	return own
}

func describe(r *peerlink.Replica, peer store.Peer) {
	r.ID, r.Version, r.StartedAt, r.Peer, r.Tunnel, r.Edge = peer.ID, peer.Version, peer.StartedAt, peer.Peer, peer.Tunnel, peer.Edge
}
