package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Declared opens a channel on which declare has made its queues.
func (c *Connection) Declared(declare func(*amqp.Channel) error) (*amqp.Channel, error) {
	ch, err := c.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := declare(ch); err != nil {
		_ = ch.Close() // RabbitMQ may have done so already
		return nil, err
	}
	return ch, nil
}
