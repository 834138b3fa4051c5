package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = consumer.Run(ctx, heard.hear) // it ends with ctx
	}()
	t.Cleanup(func() {
		cancel()
		await.Closed(t, done, "the end of the Runner that listens")
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

// awaitHealthy waits until the App was announced healthy with three pods, the
// last that the Runner's work leads to.
func (l *listener) awaitHealthy(t *testing.T, app string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, app+" is announced healthy", func(context.Context) error {
		for _, e := range l.all() {
			if a, err := e.App(); e.Type == announce.AppHealthy && err == nil && a.Name == app && a.Ready == 3 {
				return nil
			}
		}
		return fmt.Errorf("not among %d announcements", len(l.all()))
	}))
}

// assertNoGaps says whether an announcement is missing. One that came twice is
// allowed, and one that comes late: delivery is at least once, and a broker that
// crashed hands out again what was on its way.
func (l *listener) assertNoGaps(t *testing.T) {
	t.Helper()
	heard, begun := map[string]map[uint64]bool{}, map[string]bool{}
	for _, e := range l.all() {
		if heard[e.AgentID] == nil {
			heard[e.AgentID] = map[uint64]bool{}
		}
		heard[e.AgentID][e.Sequence] = true
	}
	for _, e := range l.all() {
		if !begun[e.AgentID] {
			begun[e.AgentID] = true // nothing is known of the time before
			continue
		}
		assert.True(t, e.Previous == 0 || heard[e.AgentID][e.Previous], "the announcement before %s of agent %s is missing", e.ID, e.AgentID)
	}
}
