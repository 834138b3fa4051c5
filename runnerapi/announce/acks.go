package announce

import (
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ackWithin is how soon what was handled is acknowledged: what a reader that dies has handled
// by then comes again.
const ackWithin = 20 * time.Millisecond

// acks acknowledges several messages at once: to RabbitMQ each acknowledgement is a frame to
// read and an entry in the log of a quorum queue. Messages are handled in their order.
type acks struct {
	most int

	mu    sync.Mutex
	at    amqp.Acknowledger
	last  uint64 // of the handled, by its tag
	count int    // handled and not acknowledged
	soon  *time.Timer
	err   error // of what nobody waited for
}

func newAcks(prefetch int) *acks {
	a := &acks{most: max(prefetch/2, 1)} // the other half is on its way meanwhile
	a.soon = time.AfterFunc(ackWithin, func() { _ = a.flush() })
	a.soon.Stop()
	return a
}

// handled has a message acknowledged soon.
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

// reject has a message dead-lettered, which those before it are not.
func (a *acks) reject(d *amqp.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.settle(); err != nil {
		return err
	}
	return settle(d.Nack(false, false))
}

// flush acknowledges what was handled now.
func (a *acks) flush() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settle()
}

func (a *acks) settle() error {
	if a.count > 0 && a.err == nil {
		a.soon.Stop()
		a.err = settle(a.at.Ack(a.last, a.count > 1))
		a.count = 0
	}
	return a.err
}
