package announce

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// ConsumerConfig says what to consume from where.
type ConsumerConfig struct {
	Config
	Queue Queue
	// Prefetch is how many messages the broker sends ahead. 0 means 64.
	Prefetch int
	// Gather is how long RunBatches lets pass from one batch to the next, so that what comes one by one in quick
	// succession is handled together, too. What comes later than that after another does not wait, nor does a
	// batch of Prefetch. The least is a millisecond.
	Gather time.Duration
	// Ready is called, if set, whenever the queue is bound and consumed, after a
	// reconnection too: from then on nothing is missed. Where another consumer has the
	// queue, or RabbitMQ has not noticed yet that one has gone, it comes when that has
	// ended. It must not block.
	Ready func()
}

// Handler is given one event at a time, in the order of the queue. An event may
// come more than once. An error other than [Permanent] has it tried again.
type Handler func(context.Context, Event) error

// Permanent marks a handler's error as one that trying again will not help: the
// event is dead-lettered at once.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// handlerAttempts and the backoff between them make up about half a minute.
const handlerAttempts = 10

// Consumer reads a queue of announcements.
type Consumer struct {
	cfg  ConsumerConfig
	link *link
}

// NewConsumer checks the configuration. It connects when Run is called.
func NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	if cfg.Queue.Name == "" {
		return nil, errors.New("consumer: the queue has no name")
	}
	if cfg.Name == "" {
		cfg.Name = "pipeops consumer of " + cfg.Queue.Name
	}
	if cfg.Prefetch <= 0 {
		cfg.Prefetch = 64
	}
	l, err := newLink(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, link: l}, nil
}

// Status tells how the connection stands.
func (c *Consumer) Status() Status { return c.link.Status() }

// Run consumes until the context ends, and returns its cause. It reconnects for
// as long as it takes.
func (c *Consumer) Run(ctx context.Context, handler Handler) error {
	return c.run(ctx, func(ctx context.Context, sub *subscription) error { return c.consume(ctx, sub, handler) })
}

func (c *Consumer) run(ctx context.Context, consume func(context.Context, *subscription) error) error {
	return c.link.run(ctx, func(ctx context.Context, conn *connection) error {
		sub, err := c.subscribe(ctx, conn)
		if err != nil {
			return err
		}
		c.link.connected(conn.addr)
		c.link.standby(sub.standby)
		if c.cfg.Ready != nil {
			c.cfg.Ready()
		}
		return consume(ctx, sub)
	})
}

// subscription is a queue being consumed on a channel.
type subscription struct {
	deliveries <-chan amqp.Delivery
	closed     <-chan *amqp.Error
	acks       *acks
	// standby is so until something comes, if somebody else consumed the queue before.
	standby bool
}

func (c *Consumer) subscribe(ctx context.Context, conn *connection) (*subscription, error) {
	defer conn.bound(ctx)()
	others := 0
	ch, err := conn.declared(func(ch *amqp.Channel) (err error) {
		others, err = declareQueue(ch, c.cfg.Queue)
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
	defer func() { _ = sub.acks.flush() }() // else it comes again
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

// itsTurn notes that the queue is ours: RabbitMQ says it by nothing but what it sends.
func (c *Consumer) itsTurn(sub *subscription) {
	if sub.standby {
		sub.standby = false
		c.link.standby(false)
	}
}

// ended explains why there are no more deliveries.
func (c *Consumer) ended(closed <-chan *amqp.Error) error {
	select {
	case reason := <-closed:
		return channelError(reason)
	default:
		// Only the consumer was cancelled: that is how a broker says that the queue
		// was deleted or has a new leader.
		return &BrokerError{Op: "consume queue " + c.cfg.Queue.Name, Code: CodeLost,
			Err: errors.New("the broker cancelled it"), Fix: "it is tried again"}
	}
}

// deliver has one message handled and settles it. Only the loss of the channel is
// an error.
func (c *Consumer) deliver(ctx context.Context, sub *subscription, d *amqp.Delivery, handler Handler) error {
	event, err := c.decode(d)
	if err != nil {
		c.log(zerolog.ErrorLevel, d).Err(err).Msg("malformed announcement, dead-lettered")
		return sub.acks.reject(d)
	}
	err = c.handle(ctx, event, handler)
	switch {
	case err == nil:
		return sub.acks.handled(d)
	case ctx.Err() != nil:
		return context.Cause(ctx) // unsettled, so it comes again
	default:
		c.log(zerolog.ErrorLevel, d).Err(err).Msg("announcement could not be handled, dead-lettered")
		return sub.acks.reject(d)
	}
}

func (c *Consumer) decode(d *amqp.Delivery) (Event, error) {
	event, err := Decode(d.Body)
	if err != nil {
		return event, err
	}
	if d.RoutingKey != string(event.Type) && d.Exchange == Exchange {
		return event, fieldErr("type", "is %q, but the routing key says otherwise", event.Type)
	}
	return event, nil
}

// handle tries again in place instead of giving the message back: what is given
// back comes after the messages that were sent ahead, out of order.
func (c *Consumer) handle(ctx context.Context, event Event, handler Handler) error {
	wait := newBackoff()
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
		c.link.log.Warn().Err(err).Str("event", event.ID).Str("type", string(event.Type)).
			Int("attempt", attempt).Dur("retry_in", pause).Msg("announcement not handled")
		retry.Wait(ctx, pause)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// log never shows the body: it may hold what its sender should not have put there.
func (c *Consumer) log(level zerolog.Level, d *amqp.Delivery) *zerolog.Event {
	return c.link.log.WithLevel(level).Str("queue", c.cfg.Queue.Name).
		Str("message", clip(d.MessageId)).Str("key", clip(d.RoutingKey)).Int("bytes", len(d.Body))
}

func settle(err error) error {
	if err != nil {
		return fmt.Errorf("settle a message: %w", err)
	}
	return nil
}
