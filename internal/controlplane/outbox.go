package controlplane

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
	DefaultOutboxEvents   = 200_000
	DefaultOutboxPerAgent = 1_000
	DefaultOutboxBytes    = 256 << 20

	// shortenEvery is how often the outbox is held against its limits.
	shortenEvery = 10 * time.Second
)

// OutboxStats describe how announcing stands.
type OutboxStats struct {
	store.OutboxState
	// Dropped is how many announcements were dropped since the start because a later one supersedes
	// them.
	Dropped uint64
	// Announced is how many the broker has confirmed since the start, Failures how
	// often a batch was not confirmed whole.
	Announced, Failures uint64
}

// outbox keeps what waits to be announced within its limits, with and without a broker.
type outbox struct {
	store  *store.Store
	limits store.OutboxLimits
	log    zerolog.Logger
	now    func() time.Time

	dropped, announced, failures atomic.Uint64
	crowded                      bool // the log has reported that no more can be dropped
}

// run drops until the context ends.
func (o *outbox) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := o.shorten(ctx); err != nil && ctx.Err() == nil {
			o.log.Error().Err(err).Msg("the outbox was not held against its limits; trying again")
		}
		retry.Wait(ctx, shortenEvery)
	}
	return nil
}

func (o *outbox) shorten(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	dropped, over, err := o.store.Shorten(ctx, o.limits)
	if err != nil {
		return err
	}
	if dropped > 0 {
		o.dropped.Add(uint64(dropped)) // #nosec G115 -- a number of rows
		o.log.Warn().Int64("dropped", dropped).
			Msg("the outbox is too long: announcements that later ones supersede were dropped; Runners see the gap and ask for the list")
	}
	if crowded := over && dropped == 0; crowded != o.crowded {
		o.crowded = crowded
		if crowded {
			o.log.Error().Msg("the outbox is past its limits with the last word about each agent and App alone; look at why the broker takes nothing")
		}
	}
	return nil
}

func (o *outbox) stats(ctx context.Context) (OutboxStats, error) {
	state, err := o.store.OutboxState(ctx)
	return OutboxStats{OutboxState: state, Dropped: o.dropped.Load(), Announced: o.announced.Load(), Failures: o.failures.Load()}, err
}

// Outbox returns the state of announcing, for metrics.
func (c *ControlPlane) Outbox(ctx context.Context) (OutboxStats, error) { return c.outbox.stats(ctx) }

// describe returns the text for /readyz.
func (s OutboxStats) describe(now time.Time) string {
	text := fmt.Sprintf("%d announcements wait", s.Length)
	if age := now.Sub(s.Oldest); s.Length > 0 && age >= time.Minute {
		text += ", the first for " + age.Round(time.Second).String()
	}
	if s.Dropped > 0 {
		text += fmt.Sprintf("; %d were dropped since the start, which later ones supersede", s.Dropped)
	}
	return text
}
