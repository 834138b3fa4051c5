package nodes

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
func (r *Nodes) Replicas(ctx context.Context) []peerlink.Replica {
	live := r.node.all()
	list := make([]peerlink.Replica, len(live))
	var asked sync.WaitGroup
	for i, n := range live {
		asked.Go(func() { list[i] = r.replica(ctx, n) })
	}
	asked.Wait()
	return list
}

func (r *Nodes) replica(ctx context.Context, n store.Node) peerlink.Replica {
	if n.ID == r.cfg.Self.ID {
		own := r.report(ctx)
		own.Answers = true
		return own
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	found, err := r.forwarder.link.Replica(ctx, n.ID, n.Peer)
	if err != nil {
		found = peerlink.Replica{State: peerlink.Unreachable, Reason: err.Error(), Checks: []peerlink.Check{}}
	}
	describe(&found, n)
	return found
}

// report returns what this control plane reports of itself.
func (r *Nodes) report(ctx context.Context) peerlink.Replica {
	own := r.cfg.Report(ctx)
	describe(&own, r.cfg.Self)
	return own
}

func describe(r *peerlink.Replica, n store.Node) {
	r.ID, r.Version, r.StartedAt, r.Peer, r.Tunnel, r.Edge = n.ID, n.Version, n.StartedAt, n.Peer, n.Tunnel, n.Edge
}
