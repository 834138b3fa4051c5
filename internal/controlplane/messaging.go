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

// messaging is our two ends at RabbitMQ: the announcer and the consumer that keeps
// the timeline. Nobody waits for it: without a broker the outbox grows.
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

// timelinePrefetch is how many events are put into the timeline in one transaction at most.
const timelinePrefetch = 256

// newMessaging answers nil when none is configured.
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

// remember puts an event that came back from the broker into the timeline, and queues
// it for the webhooks that want it.
func (b *messaging) remember(ctx context.Context, e announce.Event) error {
	return b.rememberAll(ctx, []announce.Event{e})
}

// rememberAll is remember for several events, in one transaction.
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

// hides says that an event is for Runners who may not see its agent any more, which is
// there all the same.
func hides(e announce.Event) bool {
	if e.Type != announce.AgentRemoved {
		return false
	}
	agent, err := e.Agent()
	return err == nil && isHiding(e.Type, agent)
}

// check says in words how the broker is, without where it is: /readyz is open to
// whoever reaches the port.
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

// unlessDone drops the error of what ended because it was told to.
func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is the point
	}
	return err
}
