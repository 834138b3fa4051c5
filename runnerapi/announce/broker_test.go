package announce_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// rabbit is the broker of all tests but those that stop or kill it.
var rabbit broker.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, rabbit.Stop).Run()) }

// These tests stop or kill the broker. Each broker takes seconds to start, so they share one.
func TestBroker_Outages(t *testing.T) {
	suite.Release(t, "brokers and receivers that die again and again")
	t.Parallel()
	b := broker.OwnForTest(t)
	t.Run("a publisher in the middle", func(t *testing.T) { testCrash(t, b) })
	t.Run("a reader behind", func(t *testing.T) { testCrashesBehind(t, b) })
}

func config(b broker.Endpoint, user string) rabbitmq.Config {
	return rabbitmq.Config{URLs: []string{b.URL(user)}, TLS: b.TLSConfig(), Log: zerolog.Nop()}
}

// run has something run until the test ends, and joins it.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.ErrorIs(t, await.Receive(t, ended, "the end of Run"), context.Canceled)
	})
}

func publisher(t *testing.T, cfg rabbitmq.Config) *publish.Publisher {
	t.Helper()
	p, err := publish.New(cfg)
	require.NoError(t, err)
	run(t, p.Run)
	return p
}

// sink collects what a consumer is given.
type sink struct {
	mu     sync.Mutex
	events []announce.Event
	news   chan struct{}
}

func newSink() *sink { return &sink{news: make(chan struct{}, 1)} }

func (s *sink) handle(_ context.Context, e announce.Event) error {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return nil
}

// until waits for the events to be as wanted.
func (s *sink) until(t *testing.T, what string, ok func([]announce.Event) bool) []announce.Event {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	for {
		s.mu.Lock()
		events := slices.Clone(s.events)
		s.mu.Unlock()
		if ok(events) {
			return events
		}
		select {
		case <-s.news:
		case <-deadline:
			t.Fatalf("waited a minute for %s; there are %d events", what, len(events))
		}
	}
}

func consume(t *testing.T, cfg rabbitmq.Config, q rabbitmq.Queue) (*sink, *announce.Consumer, <-chan struct{}) {
	t.Helper()
	s := newSink()
	c, ready := newConsumer(t, cfg, q)
	run(t, func(ctx context.Context) error { return c.Run(ctx, s.handle) })
	return s, c, ready
}

func newConsumer(t *testing.T, cfg rabbitmq.Config, q rabbitmq.Queue) (*announce.Consumer, <-chan struct{}) {
	t.Helper()
	ready := make(chan struct{}, 16)
	c, err := announce.NewConsumer(announce.ConsumerConfig{Config: cfg, Queue: q, Ready: func() { ready <- struct{}{} }})
	require.NoError(t, err)
	return c, ready
}

// listeners are the Runners that these tests' announcements are for.
var listeners = []string{"early", "order", "narrow", "dead", "directory", "crash"}

func makeEvents(t *testing.T, agent string, from, to uint64) []announce.Event {
	t.Helper()
	var events []announce.Event
	for n := from; n <= to; n++ {
		a := announce.Agent{ID: agent, Name: agent, State: announce.StateOnline}
		e, err := announce.NewAgentEvent(announce.AgentUpdated, "/controlplane", a, n, time.Now())
		require.NoError(t, err)
		e.Runners = listeners
		events = append(events, e)
	}
	return events
}

// encoded are events as the control plane's outbox keeps them.
func encoded(t *testing.T, events []announce.Event) []announce.Encoded {
	t.Helper()
	all := make([]announce.Encoded, len(events))
	for i := range events {
		var err error
		all[i], err = events[i].Encoded()
		require.NoError(t, err)
	}
	return all
}

func announced(t *testing.T, p *publish.Publisher, events []announce.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if n, err := p.Publish(ctx, encoded(t, events)); err != nil || n != len(events) {
		t.Fatalf("Publish = %d of %d, %v", n, len(events), err)
	}
}

func sequences(events []announce.Event, agent string) []uint64 {
	var all []uint64
	for _, e := range events {
		if e.AgentID == agent {
			all = append(all, e.Sequence)
		}
	}
	return all
}

// A Runner may start before the control plane: it reports what is missing, and continues once it
// is there.
func TestConsumer_WaitsForExchange(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	got, c, ready := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue("early"))
	await.Until(t, "the missing exchange to be noticed", func() bool {
		return rabbitmq.CodeOf(c.Status().Err) == rabbitmq.CodeNoExchange
	})
	assert.ErrorContains(t, c.Status().Err, "start it", "no fix")
	p := publisher(t, config(b, broker.UserControlPlane))
	await.Receive(t, ready, "the Runner's queue")
	announced(t, p, makeEvents(t, "early", 1, 1))
	got.until(t, "the announcement", func(e []announce.Event) bool { return len(e) == 1 })
}

func TestAnnouncements_InOrder(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	p := publisher(t, config(b, broker.UserControlPlane))
	got, _, ready := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue("order"))
	narrow := rabbitmq.RunnerQueue("narrow")
	narrow.Bindings = []string{"app.*"}
	apps, _, appsReady := consume(t, config(b, broker.UserRunner), narrow)
	await.Receive(t, ready, "the queue")
	await.Receive(t, appsReady, "the other queue")

	const count = 2500 // several windows
	announced(t, p, makeEvents(t, "order", 1, count))
	assert.True(t, p.Connected(), "published, but not connected")
	app, err := announce.NewAppEvent(announce.AppHealthy, "/controlplane", "order", announce.AppEvent{Namespace: "n", Name: "web"}, count+1, time.Now())
	require.NoError(t, err)
	app.Runners = listeners
	announced(t, p, []announce.Event{app})

	events := got.until(t, "all events", func(e []announce.Event) bool { return len(e) > count })
	for i, n := range sequences(events, "order") {
		require.Equal(t, uint64(i+1), n, "event %d has sequence", i+1)
	}
	only := apps.until(t, "the app event", func(e []announce.Event) bool { return len(e) > 0 })
	if len(only) != 1 || only[0].Type != announce.AppHealthy || only[0].ID != app.ID {
		t.Errorf("the queue for app.* got %+v", only)
	}
}

// No Runner has a queue yet: each begins with the list of agents.
func TestPublish_WithoutQueue(t *testing.T) {
	t.Parallel()
	p := publisher(t, config(rabbit.VHost(t), broker.UserControlPlane))
	announced(t, p, makeEvents(t, "unrouted", 1, 3))
}

func TestConsumer_DeadLettersBadEvents(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	cfg := config(b, broker.UserControlPlane)
	p := publisher(t, cfg)
	announced(t, p, makeEvents(t, "before", 1, 1)) // the topology is there
	ch := broker.Channel(t, b, broker.UserControlPlane)
	var log logbook.Book
	s, tries := newSink(), 0
	rcfg := config(b, broker.UserRunner)
	rcfg.Log = zerolog.New(&log)
	c, ready := newConsumer(t, rcfg, rabbitmq.RunnerQueue("dead"))
	run(t, func(ctx context.Context) error {
		return c.Run(ctx, func(ctx context.Context, e announce.Event) error {
			switch e.AgentID {
			case "hopeless":
				return announce.Permanent(errors.New("never"))
			case "flaky":
				if tries++; tries < 3 {
					return errors.New("not yet")
				}
			}
			return s.handle(ctx, e)
		})
	})
	await.Receive(t, ready, "the queue")
	err := ch.PublishWithContext(t.Context(), rabbitmq.Exchange, "to.dead.agent.online", true, false, amqp.Publishing{Body: []byte(`{"leak":"hush"}`)})
	require.NoError(t, err)
	announced(t, p, slices.Concat(makeEvents(t, "hopeless", 1, 1), makeEvents(t, "flaky", 1, 1), makeEvents(t, "good", 1, 1)))
	events := s.until(t, "the good ones", func(e []announce.Event) bool { return len(e) == 2 })
	assert.True(t, events[0].AgentID == "flaky" && events[1].AgentID == "good", "trying again cost the order: %v", events)
	await.Until(t, "two dead letters", func() bool { return messages(ch, rabbitmq.DeadQueue) == 2 })
	if text := log.String(); strings.Contains(text, "hush") || !strings.Contains(text, "malformed") || !strings.Contains(text, "never") {
		t.Errorf("the log:\n%s", text)
	}
}

func TestPublish_TriesNextBroker(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	cfg := config(b, broker.UserControlPlane)
	cfg.URLs = append([]string{"amqps://u:p@127.0.0.1:1/"}, cfg.URLs...)
	announced(t, publisher(t, cfg), makeEvents(t, "second", 1, 1))
}
