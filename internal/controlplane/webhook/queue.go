package webhook

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// laneBatch is how many of an agent's events are read at a time.
const laneBatch = 20

// queue sends to one webhook: a few agents' events side by side, each agent's one
// after the other.
type queue struct {
	*Dispatcher
	hook   store.Webhook
	sender *Sender
	log    zerolog.Logger

	wake    wake.Signal
	ended   chan string // the agents whose lanes have ended
	busy    map[string]bool
	running sync.WaitGroup
	cancel  context.CancelFunc

	quietUntil atomic.Int64 // UnixMicro; the receiver asked for it
	done       atomic.Int64
}

func (q *queue) look() {
	q.wake.Raise()
}

// end stops it, and what is in progress: that is sent again.
func (q *queue) end() {
	q.cancel()
	q.running.Wait()
	q.sender.Close()
}

func (q *queue) run(ctx context.Context) {
	var lanes sync.WaitGroup
	defer lanes.Wait()
	for ctx.Err() == nil {
		timer := time.NewTimer(q.start(ctx, &lanes))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-q.wake:
		case agent := <-q.ended:
			delete(q.busy, agent)
		}
		timer.Stop()
	}
}

// start starts the deliveries that are due, and returns when to call it again if nothing else
// happens.
func (q *queue) start(ctx context.Context, lanes *sync.WaitGroup) time.Duration {
	now := q.now()
	if quiet := time.UnixMicro(q.quietUntil.Load()).Sub(now); quiet > 0 {
		return quiet
	}
	if len(q.busy) == lanesAtATime {
		return longestRetry
	}
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	waiting, err := q.store.Lanes(reading, q.hook.Name)
	if err != nil {
		if ctx.Err() == nil {
			q.log.Error().Err(err).Msg("failed to read the pending deliveries; retrying")
		}
		return troublePause
	}
	for _, lane := range waiting {
		switch {
		case q.busy[lane.AgentID]:
			continue
		case lane.NextAt.After(now):
			return lane.NextAt.Sub(now)
		case len(q.busy) == lanesAtATime:
			return longestRetry // one that ends wakes us
		}
		q.busy[lane.AgentID] = true
		lanes.Go(func() {
			q.lane(ctx, lane.AgentID)
			q.ended <- lane.AgentID // it has room for all
		})
	}
	return longestRetry
}

// lane sends an agent's events until none is left, or one was not taken.
func (q *queue) lane(ctx context.Context, agentID string) {
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeout(ctx, databaseTimeout)
		batch, err := q.store.PendingDeliveries(reading, q.hook.Name, agentID, laneBatch)
		cancel()
		if err != nil {
			q.trouble(ctx, err)
			return
		}
		if len(batch) == 0 {
			return
		}
		for _, d := range batch {
			if d.NextAt.After(q.now()) || time.UnixMicro(q.quietUntil.Load()).After(q.now()) || !q.deliver(ctx, d) {
				return
			}
		}
	}
}

// trouble waits, or a lane would come back at once.
func (q *queue) trouble(ctx context.Context, err error) {
	if ctx.Err() == nil {
		q.log.Error().Err(err).Msg("failed to store the state of deliveries; retrying")
	}
	retry.Wait(ctx, troublePause)
}

// deliver makes one attempt and notes it. It reports whether the agent's next event may be sent.
func (q *queue) deliver(ctx context.Context, d store.Delivery) bool {
	result := q.sender.Send(ctx, d.EventID, []byte(d.Body))
	if ctx.Err() != nil && result.Err != nil {
		return false // asked to stop: it does not count
	}
	q.judge(&d, result)
	if q.options.Tried != nil {
		q.options.Tried(d.State)
	}
	// Noted even when we are stopping, or it is sent again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	if err := q.note(ctx, d, result); err != nil {
		q.trouble(ctx, err)
		return false
	}
	return d.State != store.DeliveryPending && !result.Gone()
}

// judge puts what came of an attempt into the delivery.
func (q *queue) judge(d *store.Delivery, r Result) {
	now := q.now()
	d.Attempts, d.TriedAt, d.Status, d.Error = d.Attempts+1, now, r.Status, ""
	switch {
	case r.Err == nil:
		d.State = store.DeliveryDelivered
		return
	case now.Sub(d.CreatedAt) >= giveUpAfter, r.Gone():
		d.State = store.DeliveryGivenUp
	default:
		wait := max(q.backoff(d.Attempts), r.RetryAfter)
		d.NextAt = now.Add(wait)
		if r.RetryAfter > 0 && (r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable) {
			q.quietUntil.Store(now.Add(r.RetryAfter).UnixMicro())
		}
	}
	d.Error = r.Err.Error()
}

// backoff doubles, with jitter over its half.
func (q *queue) backoff(attempts int) time.Duration {
	return retry.After(q.firstRetry, longestRetry, attempts)
}

func (q *queue) note(ctx context.Context, d store.Delivery, r Result) error {
	if r.Gone() {
		q.log.Warn().Msg("the receiver returned 410 Gone; disabling the webhook")
		return q.store.Update(ctx, func(tx *store.Tx) error {
			if err := tx.SaveDelivery(ctx, d); err != nil {
				return err
			}
			return tx.DisableWebhook(ctx, q.hook.Name, "the receiver answered 410 Gone", q.now())
		})
	}
	if err := q.store.SaveDelivery(ctx, d); err != nil {
		return err
	}
	switch d.State {
	case store.DeliveryPending:
		q.log.Warn().Str("error", d.Error).Str("agent", d.AgentID).Int("attempts", d.Attempts).Time("next", d.NextAt).Msg("failed to store an event")
		return nil
	case store.DeliveryGivenUp:
		q.log.Error().Str("error", d.Error).Str("agent", d.AgentID).Str("event", d.EventID).Int("attempts", d.Attempts).Msg("dropped an event")
	}
	if q.done.Add(1)%trimEvery != 0 {
		return nil
	}
	return q.store.TrimDeliveries(ctx, q.hook.Name, KeepDone)
}
