package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	frperrors "github.com/fatedier/frp/pkg/errors"
	"github.com/fatedier/frp/pkg/msg"
	netpkg "github.com/fatedier/frp/pkg/util/net"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Dial opens a connection to the agent: what its tunnel's Listener yields is the other
// end. The error is ErrNotConnected, ErrBusy or the context's.
func (s *Server) Dial(ctx context.Context, agentID string) (net.Conn, error) {
	conn, _, err := s.dial(ctx, agentID, nil)
	return conn, err
}

// Handover connects conn to the agent and returns once that is done; from then on the
// Server owns conn, copies both ways and closes it. On an error conn is still the
// caller's. The errors are those of Dial.
func (s *Server) Handover(ctx context.Context, agentID string, conn net.Conn) error {
	far, session, err := s.dial(ctx, agentID, conn.RemoteAddr())
	if err != nil {
		return err
	}
	if !session.work.Go(func() { s.relay(conn, far) }) {
		_ = far.Close()
		return ErrNotConnected
	}
	return nil
}

// dial gets a work connection from frps. from is who connects, which the agent is told.
func (s *Server) dial(ctx context.Context, agentID string, from net.Addr) (net.Conn, *session, error) {
	s.counts.dials.Add(1)
	limited, cancel := context.WithTimeout(ctx, s.cfg.Limits.DialTimeout)
	defer cancel()
	conn, session, err := s.dialCurrent(limited, agentID, from)
	if err == nil {
		return conn, session, nil
	}
	s.counts.dialErrors.Add(1)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = ErrBusy
	}
	return nil, nil, fmt.Errorf("dial agent %s: %w", agentID, err)
}

func (s *Server) dialCurrent(ctx context.Context, agentID string, from net.Addr) (net.Conn, *session, error) {
	session, err := s.agents.current(ctx, agentID)
	if err != nil {
		return nil, nil, err
	}
	select {
	case session.dials <- struct{}{}:
	case <-session.done:
		return nil, nil, ErrNotConnected
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	conn, err := session.open(ctx, from)
	return conn, session, err
}

// open waits for a work connection in a goroutine of its own, because frps' wait does not
// know contexts. It gives back the caller's place among the dials.
func (s *session) open(ctx context.Context, from net.Addr) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	result := make(chan outcome)
	s.server.counts.dialing.Add(1)
	release := func() {
		s.server.counts.dialing.Add(-1)
		<-s.dials
	}
	started := s.work.Go(func() {
		defer release()
		conn, err := s.proxy.GetWorkConnFromPool(from, nil)
		select {
		case result <- outcome{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	})
	if !started {
		release()
		return nil, ErrNotConnected
	}
	select {
	case r := <-result:
		return s.opened(r.conn, r.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *session) opened(conn net.Conn, err error) (net.Conn, error) {
	switch {
	case err == nil:
		return bare(conn), nil
	case errors.Is(err, frperrors.ErrCtlClosed), s.isDone():
		return nil, ErrNotConnected
	default:
		s.log.Warn().Err(err).Msg("agent gives no work connection")
		return nil, ErrBusy
	}
}

func (s *session) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// bare takes off the layers that frps puts around a work connection and that do nothing
// for it: FRP's messages are read to the byte.
func bare(conn net.Conn) net.Conn {
	if c, ok := conn.(*netpkg.ContextConn); ok {
		conn = c.Conn
	}
	if c, ok := conn.(*msg.Conn); ok {
		conn = c.Conn
	}
	if stream, ok := conn.(*link.Stream); ok {
		return stream
	}
	return conn
}
