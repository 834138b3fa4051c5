package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// ConsumerConfig configures a Consumer.
type ConsumerConfig struct {
	rabbitmq.Config
	Queue rabbitmq.Queue
	// Prefetch is how many messages the broker sends ahead. 0 means 64.
	Prefetch int
	// Ready is called, if set, whenever the queue is bound and consumed, also after a reconnection:
	// from then on no event is missed. If another consumer has the queue, or RabbitMQ has not yet
	// noticed that one has gone, Ready is called once that one has ended. It must not block.
	Ready func()
}

// Handler receives one event at a time, in the order of the queue. It may receive an event more
// than once. If it returns an error other than a [Permanent] one, the event is retried.
type Handler func(context.Context, Event) error

// Permanent marks a handler's error as one that a retry cannot fix: the event is dead-lettered at
// once.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// handlerAttempts and the backoff between them add up to about half a minute.
const handlerAttempts = 10

// Consumer reads a queue of announcements.
type Consumer struct {
	cfg  ConsumerConfig
	link *rabbitmq.Link
}

// NewConsumer returns a consumer after it has checked the configuration. Run connects.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if cfg.Queue.Name == "" {
		return nil, errors.New("consumer: the queue has no name")
	}
	cfg.Name = cmp.Or(cfg.Name, "pipeops consumer of "+cfg.Queue.Name)
	if cfg.Prefetch <= 0 {
		cfg.Prefetch = 64
	}
	l, err := rabbitmq.NewLink(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, link: l}, nil
}

// Status returns the state of the connection.
func (c *Consumer) Status() rabbitmq.Status { return c.link.Status() }

// Run consumes until the context ends, and returns the context's cause. It reconnects without
// limit.
func (c *Consumer) Run(ctx context.Context, handler Handler) error {
	return c.link.Run(ctx, func(ctx context.Context, conn *rabbitmq.Connection) error {
		sub, err := c.subscribe(ctx, conn)
		if err != nil {
			return err
		}
		c.link.Connected(conn.Addr)
		c.link.Standby(sub.standby)
		if c.cfg.Ready != nil {
			c.cfg.Ready()
		}
		return c.consume(ctx, sub, handler)
	})
}

// subscription is the consumption of a queue on a channel.
type subscription struct {
	deliveries <-chan amqp.Delivery
	closed     <-chan *amqp.Error
	acks       *acks
	// standby is true until a message arrives, if another consumer had the queue before.
	standby bool
}

func (c *Consumer) subscribe(ctx context.Context, conn *rabbitmq.Connection) (*subscription, error) {
	defer conn.Bound(ctx)()
	others := 0
	ch, err := conn.Declared(func(ch *amqp.Channel) (err error) {
		others, err = rabbitmq.DeclareQueue(ch, c.cfg.Queue)
		return err
	})
	if err != nil {
		return nil, err
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Qos(c.cfg.Prefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set the prefetch: %w", err)
	}
	deliveries, err := ch.Consume(c.cfg.Queue.Name, "", false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("consume queue %s: %w", c.cfg.Queue.Name, err)
	}
	return &subscription{
		deliveries: deliveries, closed: closed, acks: newAcks(c.cfg.Prefetch), standby: others > 0,
	}, nil
}

func (c *Consumer) consume(ctx context.Context, sub *subscription, handler Handler) error {
	defer func() { _ = sub.acks.flush() }() // otherwise it is delivered again
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case d, ok := <-sub.deliveries:
			if !ok {
				return c.ended(sub.closed)
			}
			c.itsTurn(sub)
			if err := c.deliver(ctx, sub, &d, handler); err != nil {
				return err
			}
		}
	}
}

// itsTurn records that the queue is now ours. RabbitMQ signals this only by its first delivery.
func (c *Consumer) itsTurn(sub *subscription) {
	if sub.standby {
		sub.standby = false
		c.link.Standby(false)
	}
}

// ended returns the reason why there are no more deliveries.
func (c *Consumer) ended(closed <-chan *amqp.Error) error {
	select {
	case reason := <-closed:
		return rabbitmq.ChannelError(reason)
	default:
		// Only the consumer was cancelled, which is how a broker reports that the queue was deleted
		// or has a new leader.
		return &rabbitmq.Error{Op: "consume queue " + c.cfg.Queue.Name, Code: rabbitmq.CodeLost,
			Err: errors.New("the broker cancelled it"), Fix: "it is tried again"}
	}
}

// deliver passes one message to the handler and settles it. Only the loss of the channel is an
// error.
func (c *Consumer) deliver(ctx context.Context, sub *subscription, d *amqp.Delivery, handler Handler) error {
	event, err := c.decode(d)
	if _, ok := errors.AsType[*UnknownTypeError](err); ok {
		c.log(zerolog.DebugLevel, d).Msg("skipped an announcement of an unknown type")
		return sub.acks.handled(d)
	}
	if err != nil {
		c.log(zerolog.ErrorLevel, d).Err(err).Msg("dead-lettered a malformed announcement")
		return sub.acks.reject(d)
	}
	err = c.handle(ctx, event, handler)
	switch {
	case err == nil:
		return sub.acks.handled(d)
	case ctx.Err() != nil:
		return context.Cause(ctx) // unsettled, so it is delivered again
	default:
		c.log(zerolog.ErrorLevel, d).Err(err).Msg("failed to handle an announcement; dead-lettered")
		return sub.acks.reject(d)
	}
}

func (c *Consumer) decode(d *amqp.Delivery) (Event, error) {
	event, err := Decode(d.Body)
	kind := event.Type
	var unknown *UnknownTypeError
	if errors.As(err, &unknown) {
		kind = unknown.Type
	} else if err != nil {
		return event, err
	}
	if d.RoutingKey != string(kind) && d.Exchange == rabbitmq.Exchange {
		return event, fieldErr("type", "is %q, but the routing key says otherwise", kind)
	}
	return event, err
}

// handle retries in place and does not return the message to the queue: a returned message would
// arrive out of order, behind the prefetched ones.
func (c *Consumer) handle(ctx context.Context, event Event, handler Handler) error {
	wait := rabbitmq.NewBackoff()
	for attempt := 1; ; attempt++ {
		err := handler(ctx, event)
		if err == nil {
			return nil
		}
		var permanent *permanentError
		if errors.As(err, &permanent) || attempt == handlerAttempts {
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		pause := wait.NextBackOff()
		c.link.Log.Warn().Err(err).Str("event", event.ID).Str("type", string(event.Type)).
			Int("attempt", attempt).Dur("retry_in", pause).Msg("failed to handle an announcement")
		retry.Wait(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// log never logs the body, which may hold what its sender should not have put there.
func (c *Consumer) log(level zerolog.Level, d *amqp.Delivery) *zerolog.Event {
	return c.link.Log.WithLevel(level).Str("queue", c.cfg.Queue.Name).
		Str("message", printable.Clip(d.MessageId)).Str("key", printable.Clip(d.RoutingKey)).Int("bytes", len(d.Body))
}
