package publish

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// DeadLetter is a message that a queue's reader could not handle, or not in time. Any client may
// have written its content: Genuine reports whether the control plane did.
type DeadLetter struct {
	// ID is the event's, or made from the body where that is not an event.
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	AgentID  string `json:"agentId,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	// Malformed says why it is not an event.
	Malformed string `json:"malformed,omitempty"`
	Genuine   bool   `json:"genuine"`

	// Queue is where it died, for the reason that RabbitMQ gives: rejected (the reader
	// could not handle it), delivery_limit (readers died of it), maxlen (the queue was
	// full) or expired. Times is how often, At when for the first time.
	Queue  string    `json:"queue"`
	Reason string    `json:"reason"`
	Times  int64     `json:"times"`
	At     time.Time `json:"at,omitzero"`
	Bytes  int       `json:"bytes"`
}

// DeadLetters reads dead letters. It needs the control plane's user.
type DeadLetters struct {
	cfg  rabbitmq.Config
	link *rabbitmq.Link
}

// NewDeadLetters returns a DeadLetters after it has checked the configuration. Each call connects
// again.
func NewDeadLetters(cfg rabbitmq.Config) (*DeadLetters, error) {
	cfg.Name = cmp.Or(cfg.Name, "pipeops dead letters")
	l, err := rabbitmq.NewLink(cfg)
	if err != nil {
		return nil, err
	}
	return &DeadLetters{cfg: cfg, link: l}, nil
}

// List returns the first dead letters, in order, and the number of all. All of them stay in the
// queue.
func (d *DeadLetters) List(ctx context.Context, limit int) (letters []DeadLetter, total int, err error) {
	total, err = d.with(ctx, func(at *reading) error {
		return d.each(ctx, at, limit, func(_ *amqp.Delivery, l DeadLetter) error {
			letters = append(letters, l)
			return nil
		})
	})
	slices.SortStableFunc(letters, DeadLetter.compare)
	return letters, total, err
}

// Count returns the number of dead letters.
func (d *DeadLetters) Count(ctx context.Context) (int, error) {
	return d.with(ctx, func(*reading) error { return nil })
}

// Drop removes the chosen dead letters.
func (d *DeadLetters) Drop(ctx context.Context, chosen func(DeadLetter) bool) (dropped []DeadLetter, err error) {
	_, err = d.with(ctx, func(at *reading) error {
		return d.each(ctx, at, rabbitmq.DeadQueueMaxLength, func(m *amqp.Delivery, l DeadLetter) error {
			if !chosen(l) {
				return nil
			}
			dropped = append(dropped, l)
			return at.settle(m)
		})
	})
	return dropped, err
}

// reading is one pass over the dead letters.
type reading struct {
	conn  *rabbitmq.Connection
	ch    *amqp.Channel
	total int // the letters at the beginning
	// held counts the letters that were read, settled those of them that were removed.
	held, settled int
}

// settle removes a letter from the queue for good.
func (r *reading) settle(m *amqp.Delivery) error {
	r.settled++
	return rabbitmq.Settle(m.Ack(false))
}

// hasQueue checks for a queue on its own channel, which the broker closes if there is none.
func (r *reading) hasQueue(ctx context.Context, name string) (bool, error) {
	defer r.conn.Bound(ctx)()
	ch, err := r.conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	defer func() { _ = ch.Close() }() // already closed if the queue is missing
	_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if missing, ok := errors.AsType[*amqp.Error](err); ok && missing.Code == amqp.NotFound {
		return false, nil
	}
	return err == nil, err
}

// with calls read on a separate connection and returns the number of dead letters. Letters that
// read does not settle then return to the queue.
func (d *DeadLetters) with(ctx context.Context, read func(*reading) error) (total int, err error) {
	conn, err := d.link.Dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Shutdown()
	at, err := d.open(ctx, conn)
	if err == nil {
		total, err = at.total, read(at)
		at.giveBack(ctx)
	}
	return total, rabbitmq.WithBroker(err, conn.Addr)
}

// each calls show for at most limit dead letters.
func (d *DeadLetters) each(ctx context.Context, at *reading, limit int, show func(*amqp.Delivery, DeadLetter) error) error {
	for range min(at.total, limit) {
		m, ok, err := at.get(ctx)
		if err != nil {
			return err
		}
		if !ok {
			break // another reader has some of them
		}
		at.held++
		if err := show(&m, d.letter(&m)); err != nil {
			return err
		}
	}
	return nil
}

// giveBack returns the unsettled letters and waits until the broker has requeued them, so that the
// next reader sees all. Closing the connection also returns them, but later.
func (r *reading) giveBack(ctx context.Context) {
	if r.held == 0 || r.ch.IsClosed() {
		return
	}
	defer r.conn.Bound(ctx)()
	if err := r.ch.Nack(0, true, true); err != nil {
		return
	}
	for range 40 {
		q, err := r.ch.QueueDeclarePassive(rabbitmq.DeadQueue, true, false, false, false, nil)
		if err != nil || q.Messages >= r.total-r.settled || ctx.Err() != nil {
			return
		}
		retry.Wait(ctx, 50*time.Millisecond)
	}
}

func (d *DeadLetters) open(ctx context.Context, conn *rabbitmq.Connection) (*reading, error) {
	defer conn.Bound(ctx)()
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	q, err := ch.QueueDeclarePassive(rabbitmq.DeadQueue, true, false, false, false, nil)
	if missing, ok := errors.AsType[*amqp.Error](err); ok && missing.Code == amqp.NotFound {
		return nil, &rabbitmq.Error{Op: "look at queue " + rabbitmq.DeadQueue, Code: rabbitmq.CodeNoExchange, Err: err,
			Fix: "the control plane makes it when it first connects: is this its broker and its virtual host?"}
	}
	if err != nil {
		return nil, rabbitmq.DeclareError("queue", rabbitmq.DeadQueue, err)
	}
	return &reading{conn: conn, ch: ch, total: q.Messages}, nil
}

func (r *reading) get(ctx context.Context) (amqp.Delivery, bool, error) {
	defer r.conn.Bound(ctx)()
	m, ok, err := r.ch.Get(rabbitmq.DeadQueue, false)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return m, ok, fmt.Errorf("read queue %s: %w", rabbitmq.DeadQueue, err)
	}
	return m, ok, nil
}

func (d *DeadLetters) letter(m *amqp.Delivery) DeadLetter {
	l := DeadLetter{ID: printable.Clip(m.MessageId), Bytes: len(m.Body), Genuine: announce.Sealed(d.cfg.Seal, m.Body, m.Headers[announce.HeaderSeal])}
	if e, err := announce.Decode(m.Body); err == nil {
		l.ID, l.Type, l.AgentID, l.Sequence = e.ID, string(e.Type), e.AgentID, e.Sequence
	} else {
		l.Malformed = err.Error()
	}
	if l.ID == "" {
		sum := sha256.Sum256(m.Body)
		l.ID = "body-" + hex.EncodeToString(sum[:8])
	}
	l.died(m.Headers)
	return l
}

// died reads RabbitMQ's record of deaths, which lists the last death first.
func (l *DeadLetter) died(headers amqp.Table) {
	deaths, _ := headers["x-death"].([]any)
	for i, death := range deaths {
		table, ok := death.(amqp.Table)
		if !ok {
			continue
		}
		times, _ := table["count"].(int64)
		l.Times += times
		if i == 0 {
			l.Queue, _ = table["queue"].(string)
			l.Reason, _ = table["reason"].(string)
			l.At, _ = table["time"].(time.Time)
		}
	}
	l.Queue, l.Reason = printable.Clip(l.Queue), printable.Clip(l.Reason)
}

// Chosen returns a filter that selects dead letters by ID; without IDs it selects all.
func Chosen(ids ...string) func(DeadLetter) bool {
	return func(l DeadLetter) bool { return len(ids) == 0 || slices.Contains(ids, l.ID) }
}
