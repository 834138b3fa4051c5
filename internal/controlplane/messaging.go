package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// messaging is both of our ends at RabbitMQ: the announcer, and the consumer that maintains the
// timeline. No other part waits for it: without a broker the outbox grows.
type messaging struct {
	store     *store.Store
	link      announce.Config
	publisher *announce.Publisher
	consumer  *announce.Consumer
	announcer *announcer
	leader    *leader
	dead      *deadCount
	webhooks  *webhook.Dispatcher
}

// timelinePrefetch is how many events at most enter the timeline in one transaction.
const timelinePrefetch = 256

// newMessaging returns nil if no broker is configured.
func newMessaging(s *store.Store, l *leader, o *outbox, seal []byte, webhooks *webhook.Dispatcher, cfg *Config) (*messaging, error) {
	if len(cfg.BrokerURLs) == 0 {
		return nil, nil
	}
	link := announce.Config{URLs: cfg.BrokerURLs, TLS: cfg.BrokerTLS, Log: cfg.Log.With().Str("part", "broker").Logger(), Seal: seal}
	publisher, err := announce.NewPublisher(link)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{Config: link, Queue: announce.Timeline(), Prefetch: timelinePrefetch, Gather: gatherFor})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	dead, err := announce.NewDeadLetters(link)
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return &messaging{
		dead:  &deadCount{letters: dead, log: link.Log},
		store: s, link: link, publisher: publisher, consumer: consumer, leader: l, webhooks: webhooks,
		announcer: &announcer{store: s, publisher: publisher, log: cfg.Log, pause: time.Second, now: cfg.Now, counts: o},
	}, nil
}

func (b *messaging) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return unlessDone(ctx, b.publisher.Run(ctx)) })
	group.Go(func() error { return unlessDone(ctx, b.consumer.RunBatches(ctx, patient(b.remember), b.rememberAll)) })
	group.Go(func() error { return b.leader.while(ctx, b.announcer.run) })
	group.Go(func() error { return b.dead.run(ctx) })
	return group.Wait()
}

// remember adds an event that came back from the broker to the timeline, and queues it for the
// webhooks that want it.
func (b *messaging) remember(ctx context.Context, e announce.Event) error {
	return b.rememberAll(ctx, []announce.Event{e})
}

// rememberAll is like remember, for several events in one transaction.
func (b *messaging) rememberAll(ctx context.Context, events []announce.Event) error {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	err := b.store.Update(ctx, func(tx *store.Tx) error {
		for _, e := range events {
			if hides(e) {
				continue
			}
			if err := tx.AddToTimeline(ctx, e); err != nil {
				return err
			}
			if err := b.webhooks.Queue(ctx, tx, e); err != nil {
				return err
			}
		}
		return nil
	})
	b.webhooks.Look()
	return err
}

// hides reports whether an event is for Runners that may no longer see its agent, although the
// agent exists.
func hides(e announce.Event) bool {
	if e.Type != announce.AgentRemoved {
		return false
	}
	agent, err := e.Agent()
	return err == nil && isHiding(e.Type, agent)
}

// check describes the broker's state without its address: /readyz is open to every client that
// reaches the port.
func (b *messaging) check() (bool, string) {
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
	var e *announce.BrokerError
	if errors.As(status.Err, &e) {
		text += fmt.Sprintf(" (%s); %s", e.Code, e.Fix)
	}
	return false, text + "; announcements are kept until it is back"
}

// unlessDone drops the error of a part that ended because it was asked to.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is the point
	}
	return err
}
