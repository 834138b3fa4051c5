package server

import (
	"context"
	"errors"
	"net"

	frperrors "github.com/fatedier/frp/pkg/errors"
	"github.com/fatedier/frp/pkg/msg"
	netpkg "github.com/fatedier/frp/pkg/util/net"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// open gets a work connection of this session from frps, whose wait does not know
// contexts. With prove it also waits for a sign of life: frps keeps a connection ready,
// and writing to one of a dead session fails much later.
func (s *session) open(ctx context.Context, from net.Addr, prove bool) (net.Conn, error) {
	if err := s.dials.enter(ctx); err != nil {
		return nil, err
	}
	s.server.counts.dialing.Add(1)
	defer func() {
		s.server.counts.dialing.Add(-1)
		s.dials.leave()
	}()
	var alive <-chan struct{}
	if prove {
		alive = s.ping()
	}
	conn, err := s.proxy.GetWorkConnFromPool(from, nil)
	if err != nil {
		return nil, s.explain(err)
	}
	if err := s.await(ctx, alive); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return bare(conn), nil
}

// openPublic opens a stream of public traffic. Nothing is asked of frps: the agent learns of the
// stream, and of what it is, from the first frame.
func (s *session) openPublic(ctx context.Context, prove bool) (net.Conn, error) {
	if err := s.dials.enter(ctx); err != nil {
		return nil, err
	}
	defer s.dials.leave()
	if s.public.count() >= s.server.cfg.Limits.Public {
		return nil, ErrBusy
	}
	if !s.public.enter() {
		return nil, ErrNotConnected
	}
	var alive <-chan struct{}
	if prove {
		alive = s.ping()
	}
	opened, err := s.mux.OpenStream()
	if err != nil {
		s.public.leave()
		return nil, ErrNotConnected
	}
	stream := link.NewStream(opened, s.public.leave)
	if err := s.await(ctx, alive); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return link.NewMarked(stream, link.PublicMark), nil
}

// await waits for the sign of life that a ping asked for; nil is none.
func (s *session) await(ctx context.Context, alive <-chan struct{}) error {
	if alive == nil {
		return nil
	}
	select {
	case <-alive:
		return nil
	case <-s.done:
		return ErrNotConnected
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ping asks the agent for a sign of life.
func (s *session) ping() (alive <-chan struct{}) {
	answered := make(chan struct{})
	s.work.Go(func() {
		if _, err := s.mux.Ping(); err == nil {
			s.doubt.end()
			close(answered)
		}
	})
	return answered
}

func (s *session) explain(err error) error {
	if errors.Is(err, frperrors.ErrCtlClosed) || s.isDone() {
		return ErrNotConnected
	}
	s.log.Warn().Err(err).Msg("agent opened no work connection")
	return ErrBusy
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
