package announce_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// Events die in a Runner's queue. As an operator does, the test lists them, requeues some and
// drops others.
func TestDeadLetters_ListRequeueDrop(t *testing.T) {
	suite.Release(t, "dead letters without the command line")
	t.Parallel()
	b := rabbit.VHost(t)
	cfg := config(b, broker.UserControlPlane)
	cfg.Seal = []byte("the control plane's secret")
	p := publisher(t, cfg)
	ch := broker.Channel(t, b, broker.UserControlPlane)
	announced(t, p, makeEvents(t, "before", 1, 1))
	got, heal := mortician(t, b, "treated")
	events := forRunner("treated", makeEvents(t, "ill", 1, 3))
	announced(t, p, events)
	forge(t, b, events[0])
	dead, err := publish.NewDeadLetters(cfg)
	require.NoError(t, err)
	count := func() int {
		n, err := dead.Count(t.Context())
		require.NoError(t, err)
		return n
	}
	await.Until(t, "all have died", func() bool { return count() == 4 })
	for range 3 { // looking changes nothing
		letters, total, err := dead.List(t.Context(), 10)
		require.NoError(t, err)
		require.True(t, total == 4 && len(letters) == 4, "List = %d of %d, %v", len(letters), total, err)
		byID := map[string]publish.DeadLetter{}
		for _, l := range letters {
			byID[l.ID] = l
		}
		l := byID[events[1].ID]
		if l.Queue != "pipeops.runner.treated" || l.Reason != "rejected" || l.Times != 1 || l.Type != "agent.updated" || l.AgentID != "ill" ||
			l.Sequence != 2 || !l.Genuine || time.Since(l.At) > time.Hour {
			t.Errorf("the letter says %+v", l)
		}
		l = byID["forged"]
		assert.True(t, !l.Genuine && l.Malformed != "" && l.Queue == "pipeops.runner.other", "what a Runner wrote says %+v", l)
	}
	if few, total, err := dead.List(t.Context(), 2); err != nil || len(few) != 2 || total != 4 {
		t.Errorf("List(2) = %d of %d, %v", len(few), total, err)
	}

	heal()
	sent, failed, err := dead.Requeue(t.Context(), publish.Chosen(events[0].ID, events[2].ID, "forged"))
	if err != nil || len(sent) != 2 || !errors.Is(failed["forged"], publish.ErrNotGenuine) {
		t.Fatalf("Requeue = %v, %v, %v", sent, failed, err)
	}
	got.until(t, "what was sent again", func(e []announce.Event) bool { return slices.Equal(sequences(e, "ill"), []uint64{1, 3}) })
	dropped, err := dead.Drop(t.Context(), publish.Chosen("forged"))
	require.NoError(t, err)
	require.True(t, len(dropped) == 1 && count() == 1, "Drop = %v, %v; %d are left", dropped, err, count())
	_, err = ch.QueueDelete("pipeops.runner.treated", false, false, false)
	require.NoError(t, err)
	// The consumer makes its queue again, unbound for a moment or not: either way the
	// letter is at one place.
	sent, failed, err = dead.Requeue(t.Context(), publish.Chosen())
	if err != nil || len(sent)+len(failed) != 1 || count() != len(failed) {
		t.Fatalf("Requeue = %v, %v, %v; %d are left", sent, failed, err, count())
	}
}

// mortician consumes a Runner's queue, and cannot handle anything until it is healed.
func mortician(t *testing.T, b broker.Endpoint, runner string) (got *sink, heal func()) {
	t.Helper()
	got = newSink()
	healed := make(chan struct{})
	c, ready := newConsumer(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue(runner))
	run(t, func(ctx context.Context) error {
		return c.Run(ctx, func(ctx context.Context, e announce.Event) error {
			if !isClosed(healed) {
				return announce.Permanent(errors.New("it is ill"))
			}
			return got.handle(ctx, e)
		})
	})
	await.Receive(t, ready, "the queue")
	return got, func() { close(healed) }
}

// forge writes to the dead letters as a Runner may, whose queues name them: an event
// that would go to another Runner.
func forge(t *testing.T, b broker.Endpoint, like announce.Event) {
	t.Helper()
	body, err := like.Encode()
	require.NoError(t, err)
	broker.PublishAsRunner(t, b, rabbitmq.DeadExchange, string(like.Type), amqp.Publishing{
		MessageId: "forged", DeliveryMode: amqp.Persistent, Body: append([]byte(`{"specversion":"1.0",`), body...),
		Headers: amqp.Table{
			"x-death":        []any{amqp.Table{"queue": "pipeops.runner.other", "reason": "rejected", "count": int64(1), "time": time.Now()}},
			"x-pipeops-seal": "0000", "CC": []any{"pipeops.runner.third"},
		},
	})
}
