package controlplane

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// announceBatch is how many events go out before their confirmations are noted.
	announceBatch = 500
	// confirmTimeout bounds the wait for a broker and its confirmations; then it
	// begins anew.
	confirmTimeout  = time.Minute
	databaseTimeout = 10 * time.Second
)

// publisher is the side of announce.Publisher that is used here.
type publisher interface {
	Publish(ctx context.Context, events []announce.Event) (confirmed int, err error)
}

// announcer empties the outbox in order. An event leaves it when the broker has
// confirmed it, not before: what is sent twice is known by its sequence.
type announcer struct {
	store     *store.Store
	publisher publisher
	log       zerolog.Logger
	// pause is the first wait after a failure; it doubles up to half a minute.
	pause time.Duration
	now   func() time.Time
}

func (a *announcer) run(ctx context.Context) error {
	for failures := 0; ; {
		more, err := a.batch(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		switch {
		case err != nil:
			failures++
			a.log.Warn().Err(err).Int("failures", failures).Msg("announcements are waiting")
			wait(ctx, backoff(a.pause, failures))
			continue
		case more:
			failures = 0
			continue
		}
		failures = 0
		select {
		case <-ctx.Done():
			return nil
		case <-a.store.Queued():
		}
	}
}

// batch announces what is first in the outbox and says whether there was any.
func (a *announcer) batch(ctx context.Context) (more bool, err error) {
	queued, err := a.store.Outbox(ctx, announceBatch)
	if err != nil || len(queued) == 0 {
		return false, err
	}
	events, err := a.addressed(ctx, queued)
	if err != nil {
		return false, err
	}
	publishing, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	// It waits for a broker if there is none: nothing here asks again and again.
	confirmed, err := a.publisher.Publish(publishing, events)
	if confirmed == 0 {
		return false, err
	}
	// What is confirmed is noted even when we are stopping, or it goes out again.
	noting, cancelNoting := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancelNoting()
	if noted := a.store.Announced(noting, queued[confirmed-1].ID); noted != nil {
		return false, noted
	}
	return true, err
}

// addressed are the events with the Runners that they are for, as of now.
func (a *announcer) addressed(ctx context.Context, queued []store.Queued) ([]announce.Event, error) {
	audience, err := newAudience(ctx, a.store, a.now())
	if err != nil {
		return nil, err
	}
	events := make([]announce.Event, len(queued))
	for i, q := range queued {
		events[i] = q.Event
		if events[i].Runners, err = audience.of(ctx, q.Event); err != nil {
			return nil, err
		}
	}
	return events, nil
}

func backoff(first time.Duration, failures int) time.Duration {
	ceiling := min(first<<min(failures-1, 10), 30*time.Second)
	return ceiling/2 + rand.N(ceiling/2+1) //nolint:gosec // spreading load needs no secrecy
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
