package announce

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// leastGather is the time that the library gets to hand over what it has received: it keeps that in
// a goroutine, which offers one delivery at a time.
const leastGather = time.Millisecond

// BatchHandler handles several events at once, in order. It handles all of them, or returns an
// error and handles none.
type BatchHandler func(ctx context.Context, events []Event) error

// RunBatches is like Run and handles several waiting events together: if each needs a commit,
// commits bound their rate. If a batch fails, its events are passed to handler one by one.
func (c *Consumer) RunBatches(ctx context.Context, handler Handler, several BatchHandler) error {
	return c.run(ctx, func(ctx context.Context, sub *subscription) error {
		return c.consumeBatches(ctx, sub, handler, several)
	})
}

func (c *Consumer) consumeBatches(ctx context.Context, sub *subscription, handler Handler, several BatchHandler) error {
	var last time.Time // when the batch before was taken
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case d, ok := <-sub.deliveries:
			if !ok {
				return c.ended(sub.closed)
			}
			c.itsTurn(sub)
			batch := c.gather(ctx, d, sub.deliveries, last.Add(c.cfg.Gather))
			last = time.Now()
			if err := c.deliverBatch(ctx, sub, batch, handler, several); err != nil {
				return err
			}
		}
	}
}

// gather takes what comes until then, and what has been received already.
func (c *Consumer) gather(ctx context.Context, first amqp.Delivery, more <-chan amqp.Delivery, then time.Time) []amqp.Delivery {
	batch := []amqp.Delivery{first}
	late := time.NewTimer(max(time.Until(then), leastGather))
	defer late.Stop()
	for len(batch) < c.cfg.Prefetch {
		select {
		case d, ok := <-more:
			if !ok {
				return batch // the next to receive learns why
			}
			batch = append(batch, d)
		case <-late.C:
			return c.received(batch, more)
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

// received adds what has come, on a machine that was too busy to take it in time.
func (c *Consumer) received(batch []amqp.Delivery, more <-chan amqp.Delivery) []amqp.Delivery {
	for len(batch) < c.cfg.Prefetch {
		select {
		case d, ok := <-more:
			if !ok {
				return batch
			}
			batch = append(batch, d)
		default:
			return batch
		}
	}
	return batch
}

func (c *Consumer) deliverBatch(ctx context.Context, sub *subscription, batch []amqp.Delivery, handler Handler, several BatchHandler) error {
	if events, ok := c.decodeAll(batch); ok && len(events) > 1 {
		err := several(ctx, events)
		if err == nil {
			return rabbitmq.Settle(batch[len(batch)-1].Ack(true)) // and all before it
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // unsettled, so they come again
		}
		c.link.Log.Warn().Err(err).Int("events", len(events)).Msg("announcements were not handled together; handling one by one")
	}
	for i := range batch {
		if err := c.deliver(ctx, sub, &batch[i], handler); err != nil {
			return err
		}
	}
	return sub.acks.flush()
}

// decodeAll returns false if one of the events is malformed or unknown, which deliver then reports.
func (c *Consumer) decodeAll(batch []amqp.Delivery) ([]Event, bool) {
	events := make([]Event, len(batch))
	for i := range batch {
		var err error
		if events[i], err = c.decode(&batch[i]); err != nil {
			return nil, false
		}
	}
	return events, true
}
