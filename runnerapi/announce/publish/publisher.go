package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// window is how many messages may await their confirmation. On a quorum queue it gives fifteen
// times the throughput of one message at a time; a larger window gains little.
const window = 500

// Publisher publishes events. It keeps a connection while Run runs.
type Publisher struct {
	link *rabbitmq.Link
	seal []byte
	// sessions passes the live session to a publishing call, which puts it back if it still works.
	// It holds at most one session, which also keeps the order: two calls never publish at the same
	// time.
	sessions chan *session
}

// session is one AMQP channel in confirm mode.
type session struct {
	ch *amqp.Channel
	// lost is closed when the session has ended; why then returns the reason. giveUp ends the
	// session.
	lost   <-chan struct{}
	why    func() error
	giveUp context.CancelCauseFunc
	// accepting is closed while the broker accepts no messages.
	accepting *gate
	// seal, if set, marks what is sent.
	seal []byte
}

// New returns a Publisher after it has checked the configuration. Run connects.
func New(cfg rabbitmq.Config) (*Publisher, error) {
	cfg.Name = cmp.Or(cfg.Name, "pipeops publisher")
	l, err := rabbitmq.NewLink(cfg)
	if err != nil {
		return nil, err
	}
	return &Publisher{link: l, seal: cfg.Seal, sessions: make(chan *session, 1)}, nil
}

// Run maintains the connection until the context ends, and returns the context's cause.
func (p *Publisher) Run(ctx context.Context) error {
	return p.link.Run(ctx, p.serve)
}

// Status returns the state of the connection.
func (p *Publisher) Status() rabbitmq.Status { return p.link.Status() }

// Connected reports whether announcements can be sent now.
func (p *Publisher) Connected() bool {
	s := p.Status()
	return s.Connected && s.Err == nil
}

// serve sets up a session on a connection and offers it until either is lost.
func (p *Publisher) serve(ctx context.Context, conn *rabbitmq.Connection) error {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	ch, err := confirmedChannel(ctx, conn)
	if err != nil {
		return err
	}
	s := &session{
		ch:        ch,
		lost:      ctx.Done(),
		why:       func() error { return context.Cause(ctx) },
		giveUp:    giveUp,
		accepting: newGate(),
		seal:      p.seal,
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	blockings := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	p.link.Connected(conn.Addr)
	p.sessions <- s
	// A call that publishes with the session releases it when giveUp is called.
	defer func() { <-p.sessions }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case reason := <-closed:
			giveUp(rabbitmq.ChannelError(reason))
			return context.Cause(ctx)
		case b, ok := <-blockings:
			if !ok {
				blockings = nil // the connection ends
				continue
			}
			p.block(s, b)
		}
	}
}

// confirmedChannel opens a channel in confirm mode and declares everything.
func confirmedChannel(ctx context.Context, conn *rabbitmq.Connection) (*amqp.Channel, error) {
	defer conn.Bound(ctx)()
	ch, err := conn.Declared(rabbitmq.DeclareExchange)
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("switch to publisher confirms: %w", err)
	}
	return ch, nil
}

func (p *Publisher) block(s *session, b amqp.Blocking) {
	if b.Active {
		p.link.Log.Warn().Str("reason", b.Reason).Msg("the broker accepts no messages")
		p.link.Blocked(b.Reason)
		s.accepting.close()
		return
	}
	p.link.Log.Info().Msg("the broker accepts messages again")
	p.link.Blocked("")
	s.accepting.open()
}

// Publish sends the events in order. It returns how many, from the front of the slice, the broker
// has stored: all of them, or those before the one that the error is about. Without a connection it
// waits for one, for as long as the context allows. After an error, later events may still have
// arrived. Send again from the first unconfirmed one: readers detect duplicates by the sequence.
func (p *Publisher) Publish(ctx context.Context, events []announce.Encoded) (confirmed int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	var s *session
	select {
	case s = <-p.sessions:
	case <-ctx.Done():
		return 0, p.notConnected(ctx)
	}
	defer func() { p.sessions <- s }()
	confirmed, err = s.publish(ctx, events)
	if err != nil {
		// Late confirmations would be taken for those of the next call.
		s.giveUp(err)
		return confirmed, rabbitmq.WithBroker(fmt.Errorf("announce: %d of %d events confirmed: %w", confirmed, len(events), err), p.Status().Broker)
	}
	return confirmed, nil
}

func (p *Publisher) notConnected(ctx context.Context) error {
	if err := p.Status().Err; err != nil {
		return fmt.Errorf("announce: not connected: %w", err)
	}
	return &rabbitmq.Error{Op: "announce", Broker: p.link.Addrs(), Code: rabbitmq.CodeUnreachable, Err: context.Cause(ctx),
		Fix: "check that the broker runs"}
}

func message(e *announce.Encoded, key []byte) amqp.Publishing {
	headers := routedTo(e)
	if len(key) > 0 {
		headers[announce.HeaderSeal] = announce.Seal(key, e.Body)
	}
	return amqp.Publishing{
		MessageId:    e.ID,
		Type:         string(e.Type),
		ContentType:  announce.ContentType,
		DeliveryMode: amqp.Persistent,
		Timestamp:    e.Time.Truncate(time.Second),
		Headers:      headers,
		Body:         e.Body,
	}
}

// routedTo returns the Runners that an event is for as further routing keys (RabbitMQ's
// sender-selected distribution). The broker removes the BCC header, so that no reader learns the
// names of the others.
func routedTo(e *announce.Encoded) amqp.Table {
	if len(e.Runners) == 0 {
		return amqp.Table{}
	}
	keys := make([]any, len(e.Runners))
	for i, runner := range e.Runners {
		keys[i] = rabbitmq.RunnerKey(runner, string(e.Type))
	}
	return amqp.Table{"BCC": keys}
}

// publish keeps up to a window of messages in flight and confirms them from the front.
func (s *session) publish(ctx context.Context, events []announce.Encoded) (int, error) {
	if err := s.accepting.wait(ctx, s); err != nil {
		return 0, err
	}
	inFlight := make([]*amqp.DeferredConfirmation, 0, min(window, len(events)))
	confirmed := 0
	confirmFront := func() error {
		if err := s.await(ctx, inFlight[0]); err != nil {
			return err
		}
		inFlight = inFlight[1:]
		confirmed++
		return nil
	}
	for i := range events {
		if len(inFlight) == window {
			if err := confirmFront(); err != nil {
				return confirmed, err
			}
		}
		m := message(&events[i], s.seal)
		c, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, rabbitmq.Exchange, m.Type, false, false, m)
		if err != nil {
			return confirmed, s.publishError(err)
		}
		inFlight = append(inFlight, c)
	}
	for len(inFlight) > 0 {
		if err := confirmFront(); err != nil {
			return confirmed, err
		}
	}
	return confirmed, nil
}

// await returns nil once the broker has stored the message in all queues that it is for. There may
// be none: a Runner begins with the list of agents when its queue is declared.
func (s *session) await(ctx context.Context, c *amqp.DeferredConfirmation) error {
	select {
	case <-c.Done():
	case <-ctx.Done():
		return &rabbitmq.Error{Op: "publish", Code: rabbitmq.CodeUnconfirmed, Err: context.Cause(ctx),
			Fix: "send it again; if it stays so, look for a queue without a leader on the broker's page: it holds up all others"}
	case <-s.lost:
		return s.lostError()
	}
	if !c.Acked() {
		if s.ch.IsClosed() { // the library treats this as a refusal
			return s.lostError()
		}
		return &rabbitmq.Error{Op: "publish", Code: rabbitmq.CodeRejected, Err: errors.New("the broker did not take the message"),
			Fix: "send it again; see the broker's log if it stays so"}
	}
	return nil
}

// lostError waits for the reason, which arrives separately but soon.
func (s *session) lostError() error {
	<-s.lost
	why := s.why()
	if rabbitmq.CodeOf(why) != "" {
		return why
	}
	return &rabbitmq.Error{Op: "publish", Code: rabbitmq.CodeLost, Err: why, Fix: "send it again"}
}

func (s *session) publishError(err error) error {
	if s.ch.IsClosed() {
		return s.lostError()
	}
	return fmt.Errorf("publish: %w", err)
}
