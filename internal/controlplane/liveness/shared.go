package liveness

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// peerRemembered is how long it is known whose agents a control plane had that is gone.
const peerRemembered = 2 * time.Minute

// Shared decides which agents are online if there are several control planes, as liveness
// does if there is one. It uses what all of them have written. Only the leading control plane runs
// it, and it remembers nothing but how long agents have been missing.
type Shared struct {
	*Liveness
	// orphanGrace is how long agents may be away after their control plane has gone: that is not
	// their outage.
	orphanGrace time.Duration
	missing     map[string]time.Time // the agents without a tunnel, and until when they may be
}

// Run takes it until the context ends.
func (c *Shared) Run(ctx context.Context) error {
	c.missing = nil // another may have led meanwhile
	began := time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		c.take(ctx)
		if time.Since(began) > peerRemembered { // the last leader may have had no time for it
			c.forgetLost(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-c.wake:
		}
	}
}

// take looks once, and announces what is due.
func (c *Shared) take(ctx context.Context) {
	due, err := c.Due(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Error().Err(err).Msg("failed to read which agents are online; retrying")
		}
		return
	}
	c.announce(ctx, due)
}

// Due lists the agents whose state is not what it should be.
func (c *Shared) Due(ctx context.Context) (map[string]announce.State, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	now := c.now()
	// A heartbeat may be as old as the last time it was written.
	misplaced, err := c.store.Misplaced(ctx, now.Add(-c.lease-c.flushEvery))
	if err != nil {
		return nil, err
	}
	due, missing := map[string]announce.State{}, map[string]time.Time{}
	for _, m := range misplaced {
		switch {
		case m.Tunnel && !m.Silent:
			due[m.AgentID] = announce.StateOnline
		case m.Tunnel:
			due[m.AgentID] = announce.StateOffline
		default:
			until := c.until(m, now)
			if missing[m.AgentID] = until; !now.Before(until) {
				due[m.AgentID] = announce.StateOffline
			}
		}
	}
	c.missing = missing
	return due, nil
}

// until returns how long an agent may be without a tunnel.
func (c *Shared) until(m store.Misplaced, now time.Time) time.Time {
	if until, known := c.missing[m.AgentID]; known {
		return until
	}
	if m.Orphaned {
		return now.Add(c.orphanGrace)
	}
	return now.Add(c.grace)
}

// bury forgets control planes that have been gone for long.
func (c *Shared) forgetLost(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	n, err := c.store.RemovePeers(ctx, peerRemembered)
	switch {
	case err != nil && ctx.Err() == nil:
		c.log.Error().Err(err).Msg("failed to remove control planes that no longer exist")
	case n > 0:
		c.log.Info().Int64("controlPlanes", n).Msg("removed control planes that no longer exist")
	}
}

// NewShared returns what decides for all control planes that serve one database.
func NewShared(l *Liveness, orphanGrace time.Duration) *Shared {
	return &Shared{Liveness: l, orphanGrace: orphanGrace}
}
