package receiver

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// lookBurst and lookEvery pace the looks of a source, however many events there are: the last
	// event always leads to a look.
	lookBurst, lookEvery = 6, 10 * time.Second
	// together is how long events are collected for one transaction, after another one.
	together = 100 * time.Millisecond
	// failedPause is before another try, after the database failed.
	failedPause = time.Second
	retryAfter  = time.Second
)

// request has a look requested soon. The Runner must still be granted the agent. That was checked
// before if a look waits.
func (r *Receivers) request(ctx context.Context, event store.Receiver) error {
	event.CalledAt = r.config.Now()
	if r.coalesced(event) {
		return nil
	}
	if _, err := r.config.LookUp(ctx, event.Runner, event.AgentID); err != nil {
		if problem.Is(err, problem.NotFound) {
			return unknown()
		}
		return err
	}
	revoked, err := r.revoked(ctx, event.Runner)
	if err != nil {
		return err
	}
	if revoked {
		return unknown()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.looks[event.ID]
	if l == nil {
		l = &look{pace: rate.NewLimiter(rate.Every(lookEvery), lookBurst)}
		r.looks[event.ID] = l
	}
	l.receiver, l.waiting = event, true
	r.wake.Raise()
	return nil
}

// coalesced reports whether a look waits already, which then is for this event.
func (r *Receivers) coalesced(event store.Receiver) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.looks[event.ID]
	if l == nil || !l.waiting {
		return false
	}
	l.receiver = event
	return true
}

func (r *Receivers) revoked(ctx context.Context, runner string) (bool, error) {
	found, err := r.config.Store.Runner(ctx, runner)
	return !found.RevokedAt.IsZero(), err
}

// Run requests looks of agents until the context ends.
func (r *Receivers) Run(ctx context.Context) error {
	for next := lookEvery; r.wake.WaitFor(ctx, next); {
		var due []*look
		due, next = r.due()
		if len(due) == 0 {
			continue
		}
		if err := r.store(ctx, due); err != nil && ctx.Err() == nil {
			r.config.Log.Error().Err(err).Int("sources", len(due)).Msg("failed to request looks at Git sources; retrying")
			r.again(due)
			retry.Wait(ctx, failedPause)
			continue
		}
		r.config.Requested()
		retry.Wait(ctx, together)
	}
	return nil
}

// due returns the looks to request now, and when the next ones are due. It forgets those that would
// not have to wait.
func (r *Receivers) due() (due []*look, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.config.Now()
	next = lookEvery
	for id, l := range r.looks {
		switch {
		case l.waiting && l.pace.AllowN(now, 1):
			l.waiting = false
			due = append(due, &look{receiver: l.receiver})
		case l.waiting:
			next = min(next, time.Duration((1-l.pace.TokensAt(now))*float64(lookEvery)))
		case l.pace.TokensAt(now) >= lookBurst:
			delete(r.looks, id)
		}
	}
	return due, max(next, together)
}

func (r *Receivers) store(ctx context.Context, due []*look) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	return r.config.Store.Update(ctx, func(tx *store.Tx) error {
		for _, l := range due {
			if err := tx.RequestLook(ctx, l.receiver); err != nil {
				return err
			}
		}
		return nil
	})
}

// again has looks requested that could not be stored, unless a newer event has come.
func (r *Receivers) again(due []*look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range due {
		if l := r.looks[d.receiver.ID]; l != nil && !l.waiting {
			l.receiver, l.waiting = d.receiver, true
		}
	}
	r.wake.Raise()
}
