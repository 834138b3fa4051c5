package outbox

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// announceBatch is how many events go out before their confirmations are noted: a
	// few windows of the publisher, whose end is a pause.
	announceBatch = 2000
	// confirmTimeout bounds the wait for a broker and its confirmations; then it begins again.
	confirmTimeout = time.Minute
)

// Publisher is the side of publish.Publisher that is used here.
type Publisher interface {
	Publish(ctx context.Context, events []announce.Encoded) (confirmed int, err error)
}

// relay empties the outbox in order. An event leaves it when the broker has
// confirmed it, not before: what is sent twice is known by its sequence.
type relay struct {
	store     *store.Store
	publisher Publisher
	log       zerolog.Logger
	// pause is the first wait after a failure; it doubles up to half a minute.
	pause time.Duration
	now   func() time.Time
	// ahead is what was read past the last batch while that was on its way.
	ahead []store.Waiting
}

// longestRetry is how long is waited at most before something is tried again.
const longestRetry = 30 * time.Second

func (a *relay) run(ctx context.Context) error {
	a.ahead = nil // of another time
	for failures := 0; ; {
		more, err := a.batch(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		switch {
		case err != nil:
			failures++
			a.log.Warn().Err(err).Int("failures", failures).Msg("announcements are pending")
			retry.Wait(ctx, retry.After(a.pause, longestRetry, failures))
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

// batch announces what is first in the outbox and reports whether there was any. What comes after
// it is read meanwhile.
func (a *relay) batch(ctx context.Context) (more bool, err error) {
	waiting := a.ahead
	a.ahead = nil
	if len(waiting) == 0 {
		if waiting, err = a.store.Waiting(ctx, 0, announceBatch); err != nil || len(waiting) == 0 {
			return false, err
		}
	}
	events, err := discovery.Addressed(ctx, a.store, waiting, a.now())
	if err != nil {
		return false, err
	}
	last := waiting[len(waiting)-1].ID
	read := make(chan []store.Waiting, 1)
	go func() {
		next, err := a.store.Waiting(ctx, last, announceBatch)
		if err != nil {
			next = nil // the next batch asks again, and reports the reason
		}
		read <- next
	}()
	confirmed, err := a.publish(ctx, waiting, events)
	next := <-read
	if err == nil {
		a.ahead = next
	}
	return confirmed > 0, err
}

// publish sends events and takes from the outbox what was confirmed.
func (a *relay) publish(ctx context.Context, waiting []store.Waiting, events []announce.Encoded) (confirmed int, err error) {
	publishing, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	// It waits for a broker if there is none: nothing here asks again and again.
	confirmed, err = a.publisher.Publish(publishing, events)
	if confirmed == 0 {
		return 0, err
	}
	// What is confirmed is noted even when we are stopping, or it goes out again.
	noting, cancelNoting := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancelNoting()
	if noted := a.store.Announced(noting, waiting[confirmed-1].ID); noted != nil {
		return 0, noted
	}
	return confirmed, err
}
