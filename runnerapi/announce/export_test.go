package announce

import amqp "github.com/rabbitmq/amqp091-go"

// ArgumentsOf are those that a queue is declared with.
func ArgumentsOf(q Queue) amqp.Table { return q.arguments() }
