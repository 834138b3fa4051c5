package announce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

func TestConsumer_NeedsQueue(t *testing.T) {
	_, err := NewConsumer(ConsumerConfig{Config: rabbitmq.Config{URLs: []string{"amqps://h/"}}})
	assert.Error(t, err, "a queue without a name is fine")
}

// settled notes what became of deliveries; of AMQP it stands for the channel.
type settled struct{ said []string }

func (s *settled) Ack(tag uint64, multiple bool) error {
	s.said = append(s.said, fmt.Sprintf("ack %d %v", tag, multiple))
	return nil
}

func (s *settled) Nack(tag uint64, _, requeue bool) error {
	s.said = append(s.said, fmt.Sprintf("nack %d %v", tag, requeue))
	return nil
}

func (s *settled) Reject(uint64, bool) error { return errors.New("nobody rejects") }

// timelineConsumer is a consumer that never connects.
func timelineConsumer(t *testing.T, cfg ConsumerConfig) *Consumer {
	t.Helper()
	cfg.Config, cfg.Queue = rabbitmq.Config{URLs: []string{"amqp://nobody.invalid"}}, rabbitmq.Timeline()
	consumer, err := NewConsumer(cfg)
	require.NoError(t, err)
	return consumer
}

func deliveriesOf(t *testing.T, to *settled, n int) []amqp.Delivery {
	t.Helper()
	list := make([]amqp.Delivery, n)
	for i := range list {
		e, err := NewAppEvent(AppHealthy, "/controlplane", "a1", AppEvent{Namespace: "shop", Name: "web"}, uint64(i+1), time.Now())
		require.NoError(t, err)
		body, err := e.Encode()
		require.NoError(t, err)
		list[i] = amqp.Delivery{Acknowledger: to, DeliveryTag: uint64(i + 1), Body: body, RoutingKey: string(e.Type), Exchange: rabbitmq.Exchange}
	}
	return list
}

func TestConsumer_Batches(t *testing.T) {
	const malformed = 1 // of the deliveries
	bad := Permanent(errors.New("no place"))
	for name, c := range map[string]struct {
		n                  int
		malform, unknown   bool
		batchErr, oneErr   error
		together, oneByOne int
		said               []string
	}{
		"together":           {n: 3, together: 3, said: []string{"ack 3 true"}},
		"one alone":          {n: 1, oneByOne: 1, said: []string{"ack 1 false"}},
		"what fails":         {n: 2, batchErr: bad, oneErr: bad, together: 2, oneByOne: 2, said: []string{"nack 1 false", "nack 2 false"}},
		"fails together":     {n: 2, batchErr: bad, together: 2, oneByOne: 2, said: []string{"ack 2 true"}},
		"one that is broken": {n: 3, malform: true, oneByOne: 2, said: []string{"ack 1 false", "nack 2 false", "ack 3 false"}},
		"an unknown type":    {n: 3, unknown: true, oneByOne: 2, said: []string{"ack 3 true"}},
	} {
		// In a bubble, acknowledgements wait for no clock but the batch's own end.
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				consumer := timelineConsumer(t, ConsumerConfig{})
				var s settled
				list := deliveriesOf(t, &s, c.n)
				if c.malform {
					list[malformed].Body = []byte("{")
				}
				if c.unknown {
					list[malformed].Body = bytes.Replace(list[malformed].Body, []byte(`"app.healthy"`), []byte(`"node.cordoned"`), 1)
					list[malformed].RoutingKey = "node.cordoned"
				}
				waiting := make(chan amqp.Delivery, c.n)
				for _, d := range list[1:] {
					waiting <- d
				}
				var together, oneByOne int
				err := consumer.deliverBatch(t.Context(), &subscription{acks: newAcks(consumer.cfg.Prefetch)}, consumer.gather(t.Context(), list[0], waiting, time.Time{}),
					func(context.Context, Event) error { oneByOne++; return c.oneErr },
					func(_ context.Context, events []Event) error { together += len(events); return c.batchErr })
				if err != nil || together != c.together || oneByOne != c.oneByOne || !slices.Equal(s.said, c.said) {
					t.Errorf("%v; %d together, %d one by one; said %q", err, together, oneByOne, s.said)
				}
			})
		})
	}
}

// The library offers deliveries one after the other.
func TestConsumer_BatchesWaiting(t *testing.T) { synctest.Test(t, batchesWaiting) }

func batchesWaiting(t *testing.T) {
	const count = 2000
	consumer := timelineConsumer(t, ConsumerConfig{})
	offered := make(chan amqp.Delivery)
	go func() {
		defer close(offered)
		for i := range uint64(count) {
			offered <- amqp.Delivery{DeliveryTag: i + 1}
		}
	}()
	batches, got := 0, uint64(0)
	for d := range offered {
		batches++
		for _, d := range consumer.gather(t.Context(), d, offered, time.Time{}) {
			if got++; d.DeliveryTag != got {
				t.Fatalf("delivery %d came as number %d", d.DeliveryTag, got)
			}
		}
	}
	assert.True(t, got == count && batches <= count/4, "%d of %d deliveries, in %d batches", got, count, batches)
}

// Deliveries come one by one. The clock moves only while all wait.
func TestConsumer_GathersBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gather, prefetch = 100 * time.Millisecond, 3
		consumer := timelineConsumer(t, ConsumerConfig{Gather: gather, Prefetch: prefetch})
		start, deliveries, ended := time.Now(), make(chan amqp.Delivery), make(chan error)
		sub := &subscription{deliveries: deliveries, acks: newAcks(prefetch)}
		var took []string
		note := func(n int) { took = append(took, fmt.Sprintf("%d at %s", n, time.Since(start))) }
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- consumer.consumeBatches(ctx, sub,
				func(context.Context, Event) error { note(1); return nil },
				func(_ context.Context, events []Event) error { note(len(events)); return nil })
		}()
		for _, d := range deliveriesOf(t, &settled{}, 2*prefetch+1) {
			deliveries <- d
			time.Sleep(gather / 5)
		}
		time.Sleep(time.Hour)
		deliveries <- deliveriesOf(t, &settled{}, 1)[0]
		time.Sleep(2 * leastGather)
		cancel()
		<-ended
		want := []string{"1 at 1ms", "3 at 60ms", "3 at 120ms", "1 at 1h0m0.141s"}
		assert.Equal(t, want, took, "one alone at once, the next together, and no more wait than are sent ahead")
	})
}

// A handler gets deliveries one by one. The test checks what the broker is sent, and when.
func TestConsumer_BatchesAcks(t *testing.T) {
	const hopeless, slow = 3, 5 // by sequence
	synctest.Test(t, func(t *testing.T) {
		consumer := timelineConsumer(t, ConsumerConfig{Prefetch: 8})
		var s settled
		waiting := make(chan amqp.Delivery, 20)
		for _, d := range deliveriesOf(t, &s, 20) {
			waiting <- d
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		on := make(chan struct{})
		sub := &subscription{deliveries: waiting, acks: newAcks(8)}
		go func() {
			ended <- consumer.consume(ctx, sub, func(_ context.Context, e Event) error {
				switch e.Sequence {
				case hopeless:
					return Permanent(errors.New("no place"))
				case slow:
					<-on
				}
				return nil
			})
		}()
		said := func(want ...string) {
			t.Helper()
			sub.acks.mu.Lock()
			defer sub.acks.mu.Unlock()
			assert.Equal(t, want, s.said)
		}
		want := []string{"ack 2 true", "nack 3 false"}
		synctest.Wait()
		said(want...) // the slow one is being handled, and the one before it is not old yet
		time.Sleep(ackWithin)
		synctest.Wait()
		want = append(want, "ack 4 false")
		said(want...)
		close(on)
		synctest.Wait()
		want = append(want, "ack 8 true", "ack 12 true", "ack 16 true", "ack 20 true") // half a prefetch each
		said(want...)
		waiting <- amqp.Delivery{Acknowledger: &s, DeliveryTag: 21, Body: []byte("{")}
		synctest.Wait()
		said(append(want, "nack 21 false")...)
		waiting <- deliveriesOf(t, &s, 1)[0]
		synctest.Wait()
		stop()
		assert.ErrorIs(t, <-ended, context.Canceled)
		said(append(want, "nack 21 false", "ack 1 false")...) // before it ends
	})
}
