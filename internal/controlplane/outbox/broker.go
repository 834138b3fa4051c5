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
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// Broker sends the outbox to RabbitMQ, and counts the dead letters there. No other part waits for
// it: without a broker the outbox grows.
type Broker struct {
	store     *store.Store
	publisher *publish.Publisher
	relay     *relay
	leader    leadership
	dead      *deadCount
}

// leadership runs work in one control plane of several at a time.
type leadership interface {
	While(ctx context.Context, work func(context.Context) error) error
}

// BrokerConfig is how the broker is reached.
type BrokerConfig struct {
	URLs []string
	TLS  *tls.Config
	// Reread returns both as they are now, for each new connection; nil if they do not change.
	Reread func() ([]string, *tls.Config, error)
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
func NewBroker(s *store.Store, cfg BrokerConfig) (*Broker, error) {
	if len(cfg.URLs) == 0 {
		return nil, nil
	}
	link := rabbitmq.Config{URLs: cfg.URLs, TLS: cfg.TLS, Reread: cfg.Reread, Log: cfg.Log.With().Str("part", "broker").Logger(), Seal: cfg.Seal}
	sender, err := publish.New(link)
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
		store: s, publisher: sender, leader: cfg.Leader,
		relay: &relay{store: s, publisher: out, log: cfg.Log, pause: time.Second, now: cfg.Now},
	}, nil
}

// Run announces until the context ends.
func (b *Broker) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return retry.UnlessDone(ctx, b.publisher.Run(ctx)) })
	group.Go(func() error { return b.leader.While(ctx, b.relay.run) })
	group.Go(func() error { return b.dead.run(ctx) })
	return group.Wait()
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
