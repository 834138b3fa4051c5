package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

const (
	// acceptPause is how long accepting rests when the system is out of file descriptors.
	acceptPause = 100 * time.Millisecond
	// lingerTimeout lets a refused agent read why before its connection is closed.
	lingerTimeout = time.Second
	// lingerBytes is more than an agent sends before it could know.
	lingerBytes = 64 << 10
)

// acceptAll calls handle, which must not block, for each connection until ln is closed.
func (s *Server) acceptAll(ctx context.Context, ln net.Listener, handle func(net.Conn)) error {
	for {
		conn, err := ln.Accept()
		switch {
		case err == nil:
			handle(conn)
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			s.cfg.Log.Warn().Err(err).Msg("cannot accept tunnel connections; raise the limit of open files if this repeats")
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
		}
	}
}

// handle turns a connection into an agent's session, which leaves the waiting room, and
// runs it.
func (s *Server) handle(ctx context.Context, raw net.Conn, leave func()) {
	defer func() { _ = raw.Close() }()
	socket := link.NewSocket(raw)
	conn, agentID, err := s.handshake(ctx, raw, socket)
	leave()
	if err != nil {
		s.counts.refused.Add(1)
		s.cfg.Log.Debug().Err(err).Stringer("remote", raw.RemoteAddr()).Msg("tunnel connection refused")
		return
	}
	s.counts.accepted.Add(1)
	newSession(s, raw, conn, socket, agentID).serve(ctx)
}

// handshake finds out which agent connects. Whoever does not even get here is cheap: a
// goroutine and a socket, for a few seconds, in bounded number.
func (s *Server) handshake(ctx context.Context, raw net.Conn, socket *link.Socket) (*tls.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.HandshakeTimeout)
	defer cancel()
	conn := tls.Server(socket, s.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		linger(ctx, raw)
		return nil, "", err
	}
	state := conn.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil, "", errors.New("the client certificate was not verified")
	}
	agentID, err := s.cfg.Identify(state)
	if err == nil && agentID == "" {
		err = errors.New("the client certificate names no agent")
	}
	return conn, agentID, err
}

// linger lets the peer read the alert that says why its certificate was refused. In TLS 1.3
// it has begun to send by then, and closing with something unread would reset the
// connection and lose the alert on its way.
func linger(ctx context.Context, raw net.Conn) {
	tcp, ok := raw.(interface{ CloseWrite() error })
	if !ok || ctx.Err() != nil || tcp.CloseWrite() != nil {
		return
	}
	_ = raw.SetReadDeadline(time.Now().Add(lingerTimeout))
	_, _ = io.CopyN(io.Discard, raw, lingerBytes)
}
