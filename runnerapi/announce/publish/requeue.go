package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// ErrNotGenuine is the reason for not resending a dead letter.
var ErrNotGenuine = errors.New("the control plane did not write it; drop it")

// maxAgain bounds how many letters are held in memory for resending.
const maxAgain = 64 << 20

var errNextTime = errors.New("too much for one time; ask once more")

// Requeue sends the chosen dead letters only to the Runners in whose queues they died, and keeps
// the order of each agent's letters. A letter that cannot be sent stays; failed has the reason, by
// ID. Readers receive them after announcements that were published since.
func (d *DeadLetters) Requeue(ctx context.Context, chosen func(DeadLetter) bool) (sent []DeadLetter, failed map[string]error, err error) {
	failed = map[string]error{}
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	_, err = d.with(ctx, func(at *reading) error {
		picked, err := d.pick(ctx, at, chosen, failed)
		if err != nil || len(picked) == 0 {
			return err
		}
		s, err := confirming(ctx, at.ch, giveUp)
		if err != nil {
			return err
		}
		for _, p := range picked {
			if err := again(ctx, at, s, &p.message, p.letter); err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				failed[p.letter.ID] = err
				continue
			}
			if err := at.settle(&p.message); err != nil {
				return err
			}
			sent = append(sent, p.letter)
		}
		return nil
	})
	return sent, failed, err
}

type picked struct {
	letter  DeadLetter
	message amqp.Delivery
}

// pick reads the chosen letters. The broker redelivers letters that were read before in another
// order than they died in.
func (d *DeadLetters) pick(ctx context.Context, at *reading, chosen func(DeadLetter) bool, failed map[string]error) ([]picked, error) {
	var list []picked
	size := 0
	err := d.each(ctx, at, rabbitmq.DeadQueueMaxLength, func(m *amqp.Delivery, l DeadLetter) error {
		switch {
		case !chosen(l):
		case size+len(m.Body) > maxAgain:
			failed[l.ID] = errNextTime
		default:
			list, size = append(list, picked{l, *m}), size+len(m.Body)
		}
		return nil
	})
	slices.SortStableFunc(list, func(a, b picked) int { return a.letter.compare(b.letter) })
	return list, err
}

// compare orders the events of one agent by sequence, and all others by time of death.
func (l DeadLetter) compare(other DeadLetter) int {
	if l.AgentID != "" && l.AgentID == other.AgentID {
		return cmp.Compare(l.Sequence, other.Sequence)
	}
	return cmp.Or(l.At.Compare(other.At), cmp.Compare(l.AgentID, other.AgentID), cmp.Compare(l.ID, other.ID))
}

// confirming turns a channel into a session. The loss of the channel ends the context.
func confirming(ctx context.Context, ch *amqp.Channel, giveUp context.CancelCauseFunc) (*session, error) {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() { giveUp(rabbitmq.ChannelError(<-closed)) }() // ends with the connection, which the caller closes
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("switch to publisher confirms: %w", err)
	}
	return &session{
		ch: ch, lost: ctx.Done(), why: func() error { return context.Cause(ctx) }, giveUp: giveUp,
	}, nil
}

// again sends one message to the Runner in whose queue it died, and waits until it has arrived. The
// message takes the path of all announcements. This avoids the default exchange, so no user needs
// the right to write to any queue.
func again(ctx context.Context, at *reading, s *session, m *amqp.Delivery, l DeadLetter) error {
	runner, isRunners := strings.CutPrefix(l.Queue, rabbitmq.RunnerQueuePrefix)
	switch {
	case !l.Genuine || l.Malformed != "":
		return ErrNotGenuine
	case !isRunners:
		return fmt.Errorf("it died in queue %q, which is not one of ours", l.Queue)
	}
	if there, err := at.hasQueue(ctx, l.Queue); err != nil || !there {
		return errors.Join(err, fmt.Errorf("its queue %s is gone; its next reader begins with the list of agents", l.Queue))
	}
	ctx, cancel := context.WithTimeout(ctx, rabbitmq.SetupTimeout)
	defer cancel()
	e := announce.Encoded{ID: l.ID, Type: announce.Type(l.Type), Time: m.Timestamp, Body: m.Body, Runners: []string{runner}}
	p := message(&e, nil)
	for _, name := range []string{announce.HeaderSeal, "x-death"} { // only these: any client may have set others
		if v, ok := m.Headers[name]; ok {
			p.Headers[name] = v
		}
	}
	c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, rabbitmq.Exchange, l.Type, false, false, p)
	if err != nil {
		return err
	}
	return s.await(ctx, c)
}
