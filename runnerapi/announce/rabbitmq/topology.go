package rabbitmq

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The names on the broker.
const (
	Exchange     = "pipeops.agents"
	DeadExchange = "pipeops.dead"
	DeadQueue    = "pipeops.dead"

	RunnerQueuePrefix = "pipeops.runner."
)

const (
	// deliveryLimit is how often the broker redelivers a message whose consumer died before it
	// dead-letters the message. Reconnections count too, so the limit is not low.
	deliveryLimit = 20
	// A Runner that is gone for good must not fill the broker: its queue expires after a month
	// unused, and drops the oldest announcements first. Both are harmless, since a Runner starts
	// from a snapshot.
	runnerQueueExpiry    = 30 * 24 * time.Hour
	runnerQueueMaxLength = 100_000
	// DeadQueueMaxLength is how many dead letters are kept; the oldest go first.
	DeadQueueMaxLength = 10_000
)

// Queue describes a queue and which announcements it receives.
type Queue struct {
	Name string
	// Bindings are patterns over event types ("agent.*", "#"). Empty means all.
	Bindings []string
	// Runner is the Runner whose announcements the queue receives. Empty means all announcements.
	Runner string
	// Transient queues belong to one process and are deleted with its connection. The others are
	// durable quorum queues. One consumer of such a queue gets all of it, in order; the others wait
	// until that one has ended. The next consumer then first gets what was not acknowledged.
	Transient bool
	// MaxLength and Expires bound a durable queue without a reader; 0 is not a bound.
	MaxLength int
	Expires   time.Duration
}

// RunnerQueue returns the durable queue of the Runner with that name.
func RunnerQueue(runner string) Queue {
	return Queue{Name: RunnerQueuePrefix + runner, Runner: runner, MaxLength: runnerQueueMaxLength, Expires: runnerQueueExpiry}
}

// RunnerWatchQueue returns a queue for one process that watches beside the Runner, such as a
// command line, without taking announcements from it.
func RunnerWatchQueue(runner, instance string) Queue {
	return Queue{Name: RunnerQueuePrefix + runner + "." + instance, Runner: runner, Transient: true}
}

// DeclareExchange declares everything that the control plane owns: the exchange and the dead-letter
// queue.
func DeclareExchange(ch *amqp.Channel) error {
	if err := ch.ExchangeDeclare(Exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return DeclareError("exchange", Exchange, err)
	}
	if err := ch.ExchangeDeclare(DeadExchange, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
		return DeclareError("exchange", DeadExchange, err)
	}
	dead := amqp.Table{"x-queue-type": "quorum", "x-max-length": int64(DeadQueueMaxLength)}
	if _, err := ch.QueueDeclare(DeadQueue, true, false, false, false, dead); err != nil {
		return DeclareError("queue", DeadQueue, err)
	}
	if err := ch.QueueBind(DeadQueue, "#", DeadExchange, false, nil); err != nil {
		return bindError(DeadQueue, DeadExchange, err)
	}
	return nil
}

// DeclareQueue declares a queue, binds it, and returns how many consumers it already has. It only
// needs the right to read from the exchange, which it does not declare: the exchange is missing if
// there is no control plane.
func DeclareQueue(ch *amqp.Channel, q Queue) (consumers int, err error) {
	durable, exclusive := !q.Transient, q.Transient
	made, err := ch.QueueDeclare(q.Name, durable, q.Transient, exclusive, false, q.Arguments())
	if err != nil {
		return 0, DeclareError("queue", q.Name, err)
	}
	bindings := q.Bindings
	if len(bindings) == 0 {
		bindings = []string{"#"}
	}
	for _, pattern := range bindings {
		if q.Runner != "" {
			pattern = RunnerKey(q.Runner, pattern)
		}
		if err := ch.QueueBind(q.Name, pattern, Exchange, false, nil); err != nil {
			return 0, bindError(q.Name, Exchange, err)
		}
	}
	return made.Consumers, nil
}

// RunnerKey returns the routing key of a Runner's announcements of a type, or a pattern that
// matches several types.
func RunnerKey(runner, typ string) string { return "to." + runner + "." + typ }

// Arguments returns the arguments with which the queue is declared.
func (q *Queue) Arguments() amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": DeadExchange}
	if q.Transient {
		return args
	}
	args["x-queue-type"] = "quorum"
	args["x-delivery-limit"] = int64(deliveryLimit)
	args["x-single-active-consumer"] = true
	if q.MaxLength > 0 {
		args["x-max-length"] = int64(q.MaxLength)
	}
	if q.Expires > 0 {
		args["x-expires"] = q.Expires.Milliseconds()
	}
	return args
}

// DeclareError explains why an exchange or a queue could not be declared.
func DeclareError(kind, name string, err error) error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		switch e.Code {
		case amqp.AccessRefused:
			return &Error{Op: "declare " + kind + " " + name, Code: CodeForbidden, Err: err,
				Fix: "give the user the right to configure it, or use the control plane's user"}
		case amqp.PreconditionFailed:
			return &Error{Op: "declare " + kind + " " + name, Code: CodeMismatch, Err: err,
				Fix: "it exists with other settings: delete it on the broker, it is recreated"}
		}
	}
	return fmt.Errorf("declare %s %s: %w", kind, name, err)
}

func bindError(queue, exchange string, err error) error {
	op := "bind queue " + queue + " to exchange " + exchange
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		switch e.Code {
		case amqp.NotFound:
			return &Error{Op: op, Code: CodeNoExchange, Err: err,
				Fix: "the control plane makes the exchange when it first connects: start it, this is tried again"}
		case amqp.AccessRefused:
			return &Error{Op: op, Code: CodeForbidden, Err: err,
				Fix: "give the user the right to write to the queue, to read the exchange, and, where it has topic permissions, to read what is for this Runner"}
		}
	}
	return fmt.Errorf("%s: %w", op, err)
}
