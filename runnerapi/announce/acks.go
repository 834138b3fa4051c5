package announce

import (
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// ackWithin is how soon a handled message is acknowledged. If a reader dies, what it handled within
// that time is delivered again.
const ackWithin = 20 * time.Millisecond

// acks acknowledges several messages at once. For RabbitMQ, each acknowledgement is a frame to read
// and an entry in the log of a quorum queue. Messages are handled in order.
type acks struct {
	most int

	mu    sync.Mutex
	at    amqp.Acknowledger
	last  uint64 // the tag of the last handled message
	count int    // handled and not yet acknowledged
	soon  *time.Timer
	err   error // of the acknowledgement that a timer sent
}

func newAcks(prefetch int) *acks {
	a := &acks{most: max(prefetch/2, 1)} // the other half is delivered in the meantime
	a.soon = time.AfterFunc(ackWithin, func() { _ = a.flush() })
	a.soon.Stop()
	return a
}

// handled schedules a message's acknowledgement.
func (a *acks) handled(d *amqp.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at, a.last = d.Acknowledger, d.DeliveryTag
	if a.count++; a.count >= a.most {
		return a.settle()
	}
	if a.count == 1 {
		a.soon.Reset(ackWithin)
	}
	return a.err
}

// reject dead-letters a message, after it has acknowledged those before it.
func (a *acks) reject(d *amqp.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.settle(); err != nil {
		return err
	}
	return rabbitmq.Settle(d.Nack(false, false))
}

// flush acknowledges now what was handled.
func (a *acks) flush() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settle()
}

func (a *acks) settle() error {
	if a.count > 0 && a.err == nil {
		a.soon.Stop()
		a.err = rabbitmq.Settle(a.at.Ack(a.last, a.count > 1))
		a.count = 0
	}
	return a.err
}
