package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// listener is a Runner that remembers everything it hears.
type listener struct {
	mu     sync.Mutex
	events []announce.Event
}

// listen hears announcements on a durable queue from now until the test ends.
func listen(t *testing.T) *listener {
	t.Helper()
	heard := &listener{}
	name := fmt.Sprintf("listener-%d", time.Now().UnixNano())
	_, err := sys.CreateRunner(t.Context(), name)
	require.NoError(t, err)
	bound := make(chan struct{})
	var once sync.Once
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{
			URLs: []string{sys.Broker.URL("runner")}, TLS: sys.Broker.TLSConfig(), Log: zerolog.Nop(), Name: t.Name(),
		},
		Queue: rabbitmq.RunnerQueue(name),
		Ready: func() { once.Do(func() { close(bound) }) },
	})
	require.NoError(t, err)
	await.Background(t, "the Runner that listens", func(ctx context.Context) error {
		_ = consumer.Run(ctx, heard.hear) // it ends with ctx
		return nil
	})
	await.Closed(t, bound, "the Runner's queue is bound")
	return heard
}

func (l *listener) hear(_ context.Context, e announce.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	return nil
}

func (l *listener) all() []announce.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]announce.Event(nil), l.events...)
}
