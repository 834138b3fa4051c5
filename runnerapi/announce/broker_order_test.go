package announce_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
)

// held is a reader that stops at one event for good, with others sent ahead to it.
type held struct {
	*sink
	at      int
	stopped chan struct{}
}

func (h *held) handle(ctx context.Context, e announce.Event) error {
	h.mu.Lock()
	due := len(h.events) == h.at-1
	h.mu.Unlock()
	if due {
		select {
		case h.stopped <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return h.sink.handle(ctx, e)
}

// hold has a reader of its own stop at that event, and waits until it has.
func hold(t *testing.T, cfg rabbitmq.Config, q rabbitmq.Queue, at int) (h *held, leave func()) {
	t.Helper()
	h = &held{sink: newSink(), at: at, stopped: make(chan struct{}, 1)}
	c, _ := newConsumer(t, cfg, q)
	leave = await.Background(t, "the reader", func(ctx context.Context) error {
		_ = c.Run(ctx, h.handle) // it ends when it is told to
		return nil
	})
	await.Receive(t, h.stopped, "the reader to be in the middle")
	return h, leave
}

// backlog makes a Runner's queue with events waiting in it.
func backlog(t *testing.T, b broker.Endpoint, runner string, count uint64) rabbitmq.Queue {
	t.Helper()
	p := publisher(t, config(b, broker.UserControlPlane))
	announced(t, p, makeEvents(t, "warm", 1, 1)) // the exchange is there
	q := rabbitmq.RunnerQueue(runner)
	_, err := rabbitmq.DeclareQueue(broker.Channel(t, b, broker.UserControlPlane), q)
	require.NoError(t, err)
	announced(t, p, forRunner(runner, makeEvents(t, runner, 1, count)))
	return q
}

// account counts, of what was heard of an agent, what came for the first time after a newer one.
func account(events []announce.Event, agent string) (late, again int) {
	heard, newest := map[uint64]bool{}, uint64(0)
	for _, n := range sequences(events, agent) {
		switch {
		case heard[n]:
			again++
		case n < newest:
			late++
		}
		heard[n], newest = true, max(newest, n)
	}
	return late, again
}

// The second of two readers gets nothing while the first is there, and then first what that had
// not acknowledged.
func TestConsumer_OneAtATime(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	const count, at = 500, 100
	q := backlog(t, b, "turns", count)
	cfg := config(b, broker.UserRunner)
	first, leave := hold(t, cfg, q, at)
	second, c, ready := consume(t, cfg, q)
	await.Receive(t, ready, "the second reader")
	s := c.Status()
	assert.True(t, s.Connected && s.Standby, "the second reader is %+v, want it connected and waiting for its turn", s)
	leave()
	events := second.until(t, "the rest", func(e []announce.Event) bool { return len(e) > count-at })
	for i, n := range sequences(events, "turns") {
		require.Equal(t, uint64(at+i), n, "event %d of the second reader has sequence %d, want %d", i+1, n, at+i)
	}
	if len(first.events) != at-1 || c.Status().Standby {
		t.Errorf("the first has %d events; the second is %+v", len(first.events), c.Status())
	}
}

// The network of a reader swallows everything. RabbitMQ takes the reader for alive until
// heartbeats are missing; the next reader waits as long, and gets nothing out of order.
func TestConsumer_SilentReaderReplaced(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	const count, at = 500, 100
	q := backlog(t, b, "mute", count)
	cfg := config(b, broker.UserRunner)
	away := faultproxy.New(t, b.Address())
	far := cfg
	far.URLs = []string{b.URLAt(broker.UserRunner, away.Addr())}
	first, _ := hold(t, far, q, at)
	away.Set(faultproxy.Silent)
	second, _, _ := consume(t, cfg, q)
	events := second.until(t, "the rest", func(e []announce.Event) bool { return len(e) > count-at })
	// What the first handled last is not acknowledged, and comes again.
	late, again := account(append(first.until(t, "its part", func([]announce.Event) bool { return true }), events...), "mute")
	assert.Zero(t, late, "%d came late and %d again", late, again)
}

// testCrashesBehind kills the broker while a reader has some of a long queue, and has the next
// one there before the queue has come to itself: what the former had not acknowledged comes
// before anything else.
func testCrashesBehind(t *testing.T, b *broker.Broker) {
	const count = 3000
	q := backlog(t, b, "behind", count)
	cfg := config(b, broker.UserRunner)
	var heard []announce.Event
	for range 2 {
		reader, leave := hold(t, cfg, q, 1000)
		require.NoError(t, b.Kill(t.Context()))
		leave()
		heard = append(heard, reader.events...)
		require.NoError(t, b.Start(t.Context()))
	}
	got, _, _ := consume(t, cfg, q)
	heard = append(heard, got.until(t, "the last event", func(e []announce.Event) bool {
		return len(e) > 0 && e[len(e)-1].Sequence == count
	})...)
	late, again := account(heard, "behind")
	t.Logf("%d late, %d again", late, again)
	if late > 0 || !complete(sequences(heard, "behind"), count) {
		t.Errorf("of %d events %d came for the first time after a newer one", len(heard)-again, late)
	}
}
