package announce

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Narrow takes from the durable queues of Runners the binding that gave each of them
// every announcement, as queues of before announcements were addressed have it. It
// waits for a broker, and returns when it is done. It needs the control plane's user:
// a Runner's may have no right to that binding.
func Narrow(ctx context.Context, cfg Config, runners []string) error {
	l, err := newLink(cfg)
	if err != nil {
		return err
	}
	ctx, done := context.WithCancelCause(ctx)
	defer done(nil)
	err = l.run(ctx, func(ctx context.Context, conn *connection) error {
		for _, runner := range runners {
			if err := unbindAll(ctx, conn, RunnerQueue(runner).Name); err != nil {
				return err
			}
		}
		done(errNarrowed)
		return nil
	})
	if errors.Is(err, errNarrowed) {
		return nil
	}
	return err
}

var errNarrowed = errors.New("the queues are narrow")

// unbindAll takes the binding from one queue. One that is not there is as good.
func unbindAll(ctx context.Context, conn *connection, queue string) error {
	defer conn.bound(ctx)()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	defer func() { _ = ch.Close() }() // it is closed already when the queue is missing
	err = ch.QueueUnbind(queue, "#", Exchange, nil)
	if missing := (*amqp.Error)(nil); errors.As(err, &missing) && missing.Code == amqp.NotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unbind queue %s: %w", queue, err)
	}
	return nil
}
