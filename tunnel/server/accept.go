package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

const (
	// acceptPause is how long accepting pauses when the system is out of file descriptors.
	acceptPause = 100 * time.Millisecond
	// lingerTimeout lets a refused agent read the reason before its connection is closed.
	lingerTimeout = time.Second
	// lingerBytes is more than an agent sends before it can know of the refusal.
	lingerBytes = 64 << 10
)

// acceptAll calls handle, which must not block, for each connection until ln is closed.
func (s *Server) acceptAll(ctx context.Context, ln net.Listener, handle func(net.Conn)) error {
	for {
		if !s.wait.Await(ctx) {
			return ctx.Err()
		}
		conn, err := ln.Accept()
		switch {
		case err == nil:
			handle(conn)
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			s.cfg.Log.Warn().Err(err).Msg("failed to accept tunnel connections; raise the limit of open files if this repeats")
			retry.Wait(ctx, acceptPause)
		}
	}
}

// handle turns a connection into an agent's session, which leaves the waiting room, and runs it.
func (s *Server) handle(ctx context.Context, raw net.Conn, place *limit.Place) {
	defer func() { _ = raw.Close() }()
	g := s.greet(ctx, raw, place)
	defer place.Leave()
	if g.err != nil {
		s.counts.refused.Add(1)
		s.cfg.Log.Debug().Err(g.err).Stringer("remote", raw.RemoteAddr()).Msg("tunnel connection refused")
		return
	}
	s.counts.accepted.Add(1)
	session := newSession(s, raw, g.conn, g.below, g.agentID, g.conn.ConnectionState)
	session.leave = place.Leave // after the login
	session.serve(ctx)
}

// greeted is the result of a handshake.
type greeted struct {
	conn    *tls.Conn
	below   *link.Socket
	agentID string
	err     error
}

// greet finds out which agent connects. A peer that does not get here costs little: a goroutine and
// a socket, for a few seconds, in bounded number.
func (s *Server) greet(ctx context.Context, raw net.Conn, place *limit.Place) (g greeted) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timeout := s.cfg.Limits.HandshakeTimeout
	below := &greeting{TurnConn: s.turns.Conn(raw, place), timeout: timeout, late: time.AfterFunc(timeout, cancel)}
	defer below.late.Stop()
	defer below.End()
	g.below = link.NewSocket(below)
	g.conn = tls.Server(g.below, s.tls)
	if g.err = g.conn.HandshakeContext(ctx); g.err != nil {
		linger(ctx, raw)
		return g
	}
	g.below.Conn = raw // the session does not keep the handshake's turn and timers
	state := g.conn.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		g.err = errors.New("the client certificate was not verified")
		return g
	}
	g.agentID, g.err = s.cfg.Identify(state)
	if g.err == nil && g.agentID == "" {
		g.err = errors.New("the client certificate names no agent")
	}
	return g
}

// turnPatience is how long an agent waits for its handshake to be computed. It gives up after 45 s.
const turnPatience = 40 * time.Second

// greeting is a connection before its handshake is done. Its timeout does not run while it waits
// for its turn.
type greeting struct {
	*limit.TurnConn
	timeout time.Duration
	late    *time.Timer
}

func (g *greeting) await(ctx context.Context) error {
	if !g.late.Stop() {
		return context.DeadlineExceeded
	}
	err := g.Take(ctx)
	g.late.Reset(g.timeout)
	return err
}

// inTurn makes handshakes wait for their turn once their client has sent all that the server's part
// needs.
func inTurn(cfg *tls.Config) *tls.Config {
	choose := cfg.GetConfigForClient
	cfg = cfg.Clone()
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if socket, ok := hello.Conn.(*link.Socket); ok {
			if g, ok := socket.Conn.(*greeting); ok {
				if err := g.await(hello.Context()); err != nil {
					return nil, err
				}
			}
		}
		if choose == nil {
			return nil, nil //nolint:nilnil // that is: the configuration as it is
		}
		return choose(hello)
	}
	return cfg
}

// linger lets the peer read the alert with the reason why its certificate was refused. In TLS 1.3
// the peer has begun to send by then, and closing with unread data would reset the connection and
// lose the alert.
func linger(ctx context.Context, raw net.Conn) {
	tcp, ok := raw.(interface{ CloseWrite() error })
	if !ok || ctx.Err() != nil || tcp.CloseWrite() != nil {
		return
	}
	_ = raw.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, raw, lingerBytes)
}
