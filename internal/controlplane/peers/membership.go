package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// peerLease is how long the others believe that a control plane lives which is not
	// heard of, and peerRenew how often it is heard of.
	peerLease = 12 * time.Second
	peerRenew = 3 * time.Second
	// tunnelsGather is how long tunnels that come and go are gathered, to be written at
	// once: a storm of agents is some statements a second.
	tunnelsGather = 100 * time.Millisecond
)

// membership is this control plane among those that serve one database. It publishes that it lives
// and which tunnels it has, and knows the other live ones.
type membership struct {
	store *store.Store
	self  store.Peer
	log   zerolog.Logger
	now   func() time.Time

	live atomic.Pointer[[]store.Peer] // as of the last renewal, this one included

	mu     sync.Mutex
	held   map[string]time.Time // the agents with a tunnel here, since when
	unsaid map[string]struct{}  // of which the database does not know that, or that it is over
	wake   wake.Signal
}

func newMembership(s *store.Store, self store.Peer, log zerolog.Logger, now func() time.Time) *membership {
	n := &membership{
		store: s, self: self, log: log, now: now,
		held: map[string]time.Time{}, unsaid: map[string]struct{}{}, wake: wake.New(),
	}
	n.live.Store(&[]store.Peer{self})
	return n
}

// all returns the control planes that live.
func (n *membership) all() []store.Peer { return *n.live.Load() }

// tunnelUp implements server.Config.OnUp.
func (n *membership) tunnelUp(agentID string) { n.note(agentID, n.now()) }

// tunnelDown implements server.Config.OnDown.
func (n *membership) tunnelDown(agentID string) { n.note(agentID, time.Time{}) }

func (n *membership) note(agentID string, since time.Time) {
	n.mu.Lock()
	if since.IsZero() {
		delete(n.held, agentID)
	} else {
		n.held[agentID] = since
	}
	n.unsaid[agentID] = struct{}{}
	n.mu.Unlock()
	n.wake.Raise()
}

// join registers this control plane, before agents connect.
func (n *membership) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := n.store.JoinPeer(ctx, n.self, peerLease); err != nil {
		return err
	}
	return n.look(ctx)
}

func (n *membership) look(ctx context.Context) error {
	live, err := n.store.Peers(ctx)
	if err == nil {
		n.live.Store(&live)
	}
	return err
}

// run renews the lease and writes which tunnels there are, until the context ends. It then tells
// the others that this control plane is gone.
func (n *membership) run(ctx context.Context) error {
	renew := time.NewTicker(peerRenew)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return n.leave(ctx)
		case <-renew.C:
			n.try(ctx, n.renew, "the lease of this control plane was not renewed; the others will take its agents for gone")
		case <-n.wake:
			retry.Wait(ctx, tunnelsGather)
		}
		n.try(ctx, n.write, "where agents have their tunnels was not written; retrying")
	}
}

func (n *membership) try(ctx context.Context, do func(context.Context) error, otherwise string) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := do(ctx); err != nil && ctx.Err() == nil {
		n.log.Error().Err(err).Msg(otherwise)
	}
}

// leave ends the lease. The tunnels stay written until the others remove the peer, so
// that they know whose agents are on their way to them.
func (n *membership) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	_, err := n.store.RenewPeer(ctx, n.self.ID, 0)
	return err
}

// renew renews the lease, or joins again if the others have given this control plane up.
func (n *membership) renew(ctx context.Context) error {
	there, err := n.store.RenewPeer(ctx, n.self.ID, peerLease)
	if err != nil {
		return err
	}
	if !there {
		if err := n.store.JoinPeer(ctx, n.self, peerLease); err != nil {
			return err
		}
		n.mu.Lock()
		for agentID := range n.held {
			n.unsaid[agentID] = struct{}{}
		}
		n.mu.Unlock()
	}
	return n.look(ctx)
}

// write returns which tunnels have come and gone.
func (n *membership) write(ctx context.Context) error {
	n.mu.Lock()
	said := n.unsaid
	n.unsaid = map[string]struct{}{}
	since := make(map[string]time.Time, len(said))
	for agentID := range said {
		since[agentID] = n.held[agentID]
	}
	n.mu.Unlock()
	if len(since) == 0 {
		return nil
	}
	err := n.store.SetTunnels(ctx, n.self.ID, since)
	if err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		for agentID := range said {
			n.unsaid[agentID] = struct{}{}
		}
	}
	return err
}
