package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Dial opens a connection to the agent, to any of its replicas: the other end comes from its
// tunnel's Listener. It returns ErrNotConnected, ErrBusy or the context's error.
func (s *Server) Dial(ctx context.Context, agentID string) (net.Conn, error) {
	conn, _, err := s.dial(ctx, agentID, runnerStream(nil))
	return conn, err
}

// DialPublic opens a stream of public traffic to the agent, to any of its replicas. The other end
// comes from its tunnel's Public listener, and from no other: such a stream is of another kind from
// its first byte on. An agent that takes no public traffic closes it. The errors are those of Dial.
// The caller must not write concurrently before its first write has returned.
func (s *Server) DialPublic(ctx context.Context, agentID string) (net.Conn, error) {
	conn, _, err := s.dial(ctx, agentID, (*session).openPublic)
	return conn, err
}

// Handover connects conn to the agent and returns once that is done; from then on the
// Server owns conn, copies both ways and closes it. On an error conn is still the
// caller's. The errors are those of Dial.
func (s *Server) Handover(ctx context.Context, agentID string, conn net.Conn) error {
	return s.handover(ctx, agentID, conn, runnerStream(conn.RemoteAddr()))
}

// HandoverPublic is Handover to a stream of public traffic.
func (s *Server) HandoverPublic(ctx context.Context, agentID string, conn net.Conn) error {
	return s.handover(ctx, agentID, conn, (*session).openPublic)
}

func (s *Server) handover(ctx context.Context, agentID string, conn net.Conn, open opener) error {
	for {
		far, session, err := s.dial(ctx, agentID, open)
		if err != nil {
			return err
		}
		if session.work.Go(func() { s.relay(conn, far) }) {
			return nil
		}
		_ = far.Close() // the session ended just now; nothing of conn was read
	}
}

// opener opens a stream of one kind. With prove it waits for a sign of life of the session.
type opener func(s *session, ctx context.Context, prove bool) (net.Conn, error)

// runnerStream opens work connections of frps. from is the client's address, which is sent to the
// agent.
func runnerStream(from net.Addr) opener {
	return func(s *session, ctx context.Context, prove bool) (net.Conn, error) { return s.open(ctx, from, prove) }
}

// dial opens a stream to one of the agent's sessions.
func (s *Server) dial(ctx context.Context, agentID string, open opener) (net.Conn, *session, error) {
	s.counts.dials.Add(1)
	limited, cancel := context.WithTimeout(ctx, s.cfg.Limits.DialTimeout)
	defer cancel()
	d := &dialling{
		agents: s.agents, agentID: agentID, open: open, hedgeAfter: s.cfg.Limits.HedgeAfter,
		tried: make(map[*session]bool), answers: make(chan answer),
	}
	conn, session, err := d.run(limited)
	if err == nil {
		return conn, session, nil
	}
	s.counts.dialErrors.Add(1)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = ErrBusy
	}
	return nil, nil, fmt.Errorf("dial agent %s: %w", agentID, err)
}

// dialling is one dial: to one session, to the next if that fails, and also to the next if the
// first does not respond in time. The first that responds wins.
type dialling struct {
	agents     *agents
	agentID    string
	open       opener
	hedgeAfter time.Duration
	tried      map[*session]bool // whether its answer is still to come
	pending    int
	late       bool // none of those asked answered in time
	answers    chan answer
}

type answer struct {
	session *session
	conn    net.Conn
	err     error
}

func (d *dialling) run(ctx context.Context) (net.Conn, *session, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the others give back what they get
	failure := ErrNotConnected
	for {
		next := d.tryNext(ctx)
		if d.pending == 0 && !next.awaited {
			return nil, nil, failure
		}
		select {
		case got := <-d.answers:
			d.pending--
			d.tried[got.session] = false
			if got.err == nil {
				return got.conn, got.session, nil
			}
			failure = got.err
		case <-time.After(d.hedgeAfter):
			d.beLate()
		case <-next.changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// tryNext tries one more session if none is being tried, or none that responds.
func (d *dialling) tryNext(ctx context.Context) choice {
	for {
		next := d.agents.choose(d.agentID, d.tried)
		if next.session == nil || d.pending > 0 && !d.late {
			return next
		}
		d.late = false
		d.tried[next.session] = true
		if d.ask(ctx, next) {
			d.pending++
			return next
		}
	}
}

func (d *dialling) ask(ctx context.Context, c choice) bool {
	d.agents.chosen(c.session)
	return c.session.work.Go(func() {
		conn, err := d.open(c.session, ctx, !c.alone)
		select {
		case d.answers <- answer{c.session, conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	})
}

func (d *dialling) beLate() {
	d.late = true
	for session, pending := range d.tried {
		if pending {
			session.doubt.begin()
		}
	}
}
