// Package outbox empties the outbox into RabbitMQ, and keeps it within its limits.
package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// The defaults of Limits.Outbox: more than a broker's outage of a day brings in a fleet
// of ten thousand, and less than fills a disk.
const (
	DefaultEvents   = 200_000
	DefaultPerAgent = 1_000
	DefaultBytes    = 256 << 20

	// shortenEvery is how often the outbox is held against its limits.
	shortenEvery = 10 * time.Second
)

// Stats describe how announcing stands.
type Stats struct {
	store.OutboxState
	// Dropped is how many announcements were dropped since the start because a later one supersedes
	// them.
	Dropped uint64
}

// Outbox keeps what waits to be announced within its limits, with and without a broker.
type Outbox struct {
	store  *store.Store
	limits store.OutboxLimits
	log    zerolog.Logger

	Dropped atomic.Uint64
	crowded bool // the log has reported that no more can be dropped
}

// New returns the outbox of a store.
func New(s *store.Store, limits store.OutboxLimits, log zerolog.Logger) *Outbox {
	return &Outbox{store: s, limits: limits, log: log}
}

// Run drops until the context ends.
func (o *Outbox) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := o.Shorten(ctx); err != nil && ctx.Err() == nil {
			o.log.Error().Err(err).Msg("failed to check the outbox's limits; retrying")
		}
		retry.Wait(ctx, shortenEvery)
	}
	return nil
}

// Shorten drops once what is over the limits.
func (o *Outbox) Shorten(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	dropped, over, err := o.store.Shorten(ctx, o.limits)
	if err != nil {
		return err
	}
	if dropped > 0 {
		o.Dropped.Add(uint64(dropped)) // #nosec G115 -- a number of rows
		o.log.Warn().Int64("dropped", dropped).
			Msg("the outbox is over its limit: dropped superseded announcements; Runners see the gap and list the agents")
	}
	if crowded := over && dropped == 0; crowded != o.crowded {
		o.crowded = crowded
		if crowded {
			o.log.Error().Msg("the outbox exceeds its limits with only the latest event of each agent and App left; find out why the broker accepts no messages")
		}
	}
	return nil
}

// Stats returns how announcing stands.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	state, err := o.store.OutboxState(ctx)
	return Stats{OutboxState: state, Dropped: o.Dropped.Load()}, err
}

// Describe returns the text for /readyz.
func (s Stats) Describe(now time.Time) string {
	text := fmt.Sprintf("%d announcements wait", s.Length)
	if age := now.Sub(s.Oldest); s.Length > 0 && age >= time.Minute {
		text += ", the first for " + age.Round(time.Second).String()
	}
	if s.Dropped > 0 {
		text += fmt.Sprintf("; %d were dropped since the start, which later ones supersede", s.Dropped)
	}
	return text
}
