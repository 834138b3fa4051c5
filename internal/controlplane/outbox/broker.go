package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// Broker is both of our ends at RabbitMQ: the relay, and the consumer that maintains the
// timeline. No other part waits for it: without a broker the outbox grows.
type Broker struct {
	store     *store.Store
	publisher *publish.Publisher
	consumer  *announce.Consumer
	relay     *relay
	leader    leadership
	dead      *deadCount
	webhooks  *webhook.Dispatcher
}

// timelinePrefetch is how many events at most enter the timeline in one transaction.
const timelinePrefetch = 256

// timelineGather is how long events are gathered for one transaction.
const timelineGather = 100 * time.Millisecond

// leadership runs work in one control plane of several at a time.
type leadership interface {
	While(ctx context.Context, work func(context.Context) error) error
}

// BrokerConfig is how the broker is reached.
type BrokerConfig struct {
	URLs []string
	TLS  *tls.Config
	// Seal marks the control plane's own messages: see the function Seal.
	Seal []byte
	// Leader announces.
	Leader leadership
	// Measured wraps the publisher, for metrics; nil for none.
	Measured func(Publisher) Publisher
	Log      zerolog.Logger
	Now      func() time.Time
}

// NewBroker returns nil if no broker is configured.
func NewBroker(s *store.Store, webhooks *webhook.Dispatcher, cfg BrokerConfig) (*Broker, error) {
	if len(cfg.URLs) == 0 {
		return nil, nil
	}
	link := rabbitmq.Config{URLs: cfg.URLs, TLS: cfg.TLS, Log: cfg.Log.With().Str("part", "broker").Logger(), Seal: cfg.Seal}
	sender, err := publish.New(link)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{Config: link, Queue: rabbitmq.Timeline(), Prefetch: timelinePrefetch, Gather: timelineGather})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	dead, err := publish.NewDeadLetters(link)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	out := Publisher(sender)
	if cfg.Measured != nil {
		out = cfg.Measured(out)
	}
	return &Broker{
		dead:  &deadCount{letters: dead, log: link.Log},
		store: s, publisher: sender, consumer: consumer, leader: cfg.Leader, webhooks: webhooks,
		relay: &relay{store: s, publisher: out, log: cfg.Log, pause: time.Second, now: cfg.Now},
	}, nil
}

// Run announces and keeps the timeline until the context ends.
func (b *Broker) Run(ctx context.Context) error {
	all := func(ctx context.Context, events []announce.Event) error {
		return Remember(ctx, b.store, b.webhooks, events)
	}
	one := func(ctx context.Context, e announce.Event) error { return all(ctx, []announce.Event{e}) }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return retry.UnlessDone(ctx, b.publisher.Run(ctx)) })
	group.Go(func() error {
		return retry.UnlessDone(ctx, b.consumer.RunBatches(ctx, patient(one), all))
	})
	group.Go(func() error { return b.leader.While(ctx, b.relay.run) })
	group.Go(func() error { return b.dead.run(ctx) })
	return group.Wait()
}

// Remember adds events that came back from the broker to the timeline, and queues them for the
// webhooks that want them.
func Remember(ctx context.Context, s *store.Store, webhooks *webhook.Dispatcher, events []announce.Event) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	err := s.Update(ctx, func(tx *store.Tx) error {
		for _, e := range events {
			if store.Hides(e) {
				continue
			}
			if err := tx.AddToTimeline(ctx, e); err != nil {
				return err
			}
			if err := webhooks.Queue(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	webhooks.Look()
	return err
}

// Check describes the broker's state without its address: /readyz is open to every client that
// reaches the port.
func (b *Broker) Check() (bool, string) {
	if b == nil {
		return false, "none is configured; announcements are kept until one is"
	}
	status := b.publisher.Status()
	if status.Connected && status.Err == nil {
		return true, "connected since " + status.Since.UTC().Format(time.RFC3339)
	}
	text := "down since " + status.Since.UTC().Format(time.RFC3339)
	if status.Since.IsZero() {
		text = "down since the start"
	}
	if e, ok := errors.AsType[*rabbitmq.Error](status.Err); ok {
		text += fmt.Sprintf(" (%s); %s", e.Code, e.Fix)
	}
	return false, text + "; announcements are kept until it is back"
}

// Connected reports whether announcements can go out now. There may be no broker.
func (b *Broker) Connected() bool { return b != nil && b.publisher.Connected() }
