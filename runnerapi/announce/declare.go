package announce

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// declared opens a channel on which declare has made what it makes of the queue. A queue of
// before queues kept the order is there with other settings, which RabbitMQ cannot change:
// it is used as it is, and the queue that is returned says so.
func (c *connection) declared(q Queue, declare func(*amqp.Channel, Queue) error) (*amqp.Channel, Queue, error) {
	ch, err := c.channelFor(q, declare)
	if CodeOf(err) != CodeMismatch || q.Transient {
		return ch, q, err
	}
	q.unordered = true
	ch, again := c.channelFor(q, declare)
	if CodeOf(again) == CodeMismatch {
		return nil, q, err // it differs in more than that
	}
	return ch, q, again
}

// channelFor takes a channel for each try: RabbitMQ closes the one that it refuses something on.
func (c *connection) channelFor(q Queue, declare func(*amqp.Channel, Queue) error) (*amqp.Channel, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := declare(ch, q); err != nil {
		_ = ch.Close() // which RabbitMQ may have done
		return nil, err
	}
	return ch, nil
}

// warnUnordered says once what a queue of before does not promise.
func (c *Consumer) warnUnordered() {
	c.unordered.Do(func() {
		command := "rabbitmqctl delete_queue "
		if vhost := c.link.brokers[0].uri.Vhost; vhost != "/" {
			command += "--vhost " + vhost + " "
		}
		c.link.log.Warn().Str("queue", c.cfg.Queue.Name).
			Str("fix", "when it is empty, delete it on the broker ("+command+c.cfg.Queue.Name+"): it is made anew at once").
			Msg("this queue was made before queues kept the order: after a reader of it or the broker died, some announcements come behind newer ones of the same agent")
	})
}
