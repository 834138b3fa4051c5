package announce

import (
	"context"
	"errors"
	"fmt"
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

// idleConsumer is a consumer that never connects.
func idleConsumer(t *testing.T, cfg ConsumerConfig) *Consumer {
	t.Helper()
	cfg.Config, cfg.Queue = rabbitmq.Config{URLs: []string{"amqp://nobody.invalid"}}, rabbitmq.RunnerQueue("r")
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

// A handler gets deliveries one by one. The test checks what the broker is sent, and when.
func TestConsumer_BatchesAcks(t *testing.T) {
	const hopeless, slow = 3, 5 // by sequence
	synctest.Test(t, func(t *testing.T) {
		consumer := idleConsumer(t, ConsumerConfig{Prefetch: 8})
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
