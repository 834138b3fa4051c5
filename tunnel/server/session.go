package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fatedier/frp/pkg/msg"
	frps "github.com/fatedier/frp/server"
	"github.com/fatedier/frp/server/proxy"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

var (
	errDisconnected = errors.New("the control plane disconnected the agent")
	errNoLogin      = errors.New("no login in time")
	errStopping     = errors.New("the control plane is stopping")
	errStreams      = errors.New("the agent has too many streams open")
)

// session is one connection of one agent, from its certificate to its end.
type session struct {
	server  *Server
	agentID string
	raw     net.Conn     // closed to end the session at once
	conn    net.Conn     // the connection of the multiplexer
	below   *link.Socket // of its TLS
	log     sessionLog
	proof   proof
	calling calls // of the API
	public  calls // streams of public traffic
	dials   dials
	doubt   doubt
	asked   atomic.Int64 // work connections that frps asked for and that have not arrived
	drains  atomic.Int64 // requests to drain
	// The fields that the registry keeps here, under its own lock.
	instance *instance // once it has logged in
	takes    bool      // it can be dialled
	turn     uint64    // of its newest dial

	replica replica // the replica, once it has logged in

	mu      sync.Mutex
	mux     *mux.Session
	control *frps.Control
	proxy   proxy.Proxy
	reason  error

	loggedIn  atomic.Bool
	settled   func()        // the login is done
	leave     func()        // leaves the waiting room
	ready     chan struct{} // closed when the agent can be dialled
	up        sync.Once
	drainOnce sync.Once
	done      chan struct{} // closed when the session is over
	killed    sync.Once
	work      link.Gate // the goroutines of dials and relays
}

func newSession(s *Server, raw, conn net.Conn, below *link.Socket, agentID string, proven func() tls.ConnectionState) *session {
	done := make(chan struct{})
	return &session{
		server: s, agentID: agentID, raw: raw, conn: conn, below: below, proof: proof{first: proven},
		log:   sessionLog{&s.cfg.Log, agentID, raw},
		dials: newDials(s.cfg.Limits.Dials, done),
		ready: make(chan struct{}), done: done, leave: func() {},
	}
}

// serve runs the session to its end and waits for everything that it started.
func (s *session) serve(ctx context.Context) {
	loggedIn, ok := s.server.login.Enter(s.agentID)
	if !ok {
		s.server.counts.refused.Add(1)
		s.server.told.Do(func() {
			s.log.Warn().Int("limit", s.server.cfg.Limits.Logins).Msg("agent has too many connections without a login; closing further ones")
		})
		return
	}
	defer loggedIn()
	var streams sync.WaitGroup
	mux := link.Server(s.conn, s.below, func(opened *mux.Stream) { s.accept(ctx, &streams, opened) })
	s.mu.Lock()
	s.mux = mux
	s.mu.Unlock()
	s.server.counts.sessions.Add(1)
	defer s.server.counts.sessions.Add(-1)
	s.server.agents.add(s)
	stop := context.AfterFunc(ctx, func() {
		s.drainPublic()
		s.calling.drain(s.server.cfg.Limits.CallsDrain, s.done)
		s.goAway()
		s.kill(errStopping)
	})
	defer stop()
	late := time.AfterFunc(s.server.cfg.Limits.HandshakeTimeout, s.killUnlessReady)
	s.settled = loggedIn
	defer late.Stop()

	s.kill(mux.Serve())
	streams.Wait()
	s.work.Shut()
	if s.control != nil {
		s.control.WaitClosed()
	}
	s.server.agents.remove(s)
	s.log.Info().Err(s.why()).Str("instance", s.replica.instance).Msg("agent's tunnel closed")
}

// kill ends the session at once, for the first reason given. The raw connection is closed first: an
// orderly close through the layers above could take seconds on a dead connection.
func (s *session) kill(reason error) {
	s.killed.Do(func() {
		s.mu.Lock()
		s.reason = reason
		mux := s.mux
		s.mu.Unlock()
		close(s.done)
		_ = s.raw.Close()
		if mux != nil {
			_ = mux.Close()
		}
	})
}

func (s *session) killUnlessReady() {
	select {
	case <-s.ready:
	default:
		s.kill(errNoLogin)
	}
}

func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// accept handles a new stream in a separate goroutine, so that a silent one blocks no others. The
// multiplexer calls it in the goroutine that reads.
func (s *session) accept(ctx context.Context, streams *sync.WaitGroup, opened *mux.Stream) {
	if s.mux.NumStreams()-s.public.count() > s.server.cfg.Limits.Streams {
		_ = opened.Close()
		streams.Go(func() { s.kill(errStreams) }) // it waits for reading to end
		return
	}
	stream := link.NewStream(opened, nil)
	streams.Go(func() {
		if err := s.begin(ctx, stream); err != nil {
			_ = stream.Close()
			if errors.Is(err, errForeign) {
				s.log.Warn().Err(err).Msg("agent sent a message that it may not send")
				s.kill(err)
			}
		}
	})
}

// begin reads the first message of an FRP connection and passes the connection on. A call and a
// proof start with a mark instead. All other first messages are refused, in particular a visitor's.
func (s *session) begin(ctx context.Context, stream *link.Stream) error {
	_ = stream.SetReadDeadline(time.Now().Add(s.server.cfg.Limits.HandshakeTimeout))
	rest, err := s.beginMarked(ctx, stream)
	if err != nil || rest == nil {
		return err
	}
	first, err := msg.ReadMsg(rest)
	if err != nil {
		return s.unread(err)
	}
	_ = stream.SetReadDeadline(time.Time{})
	switch m := first.(type) {
	case *msg.Login:
		return s.login(ctx, stream, m)
	case *msg.NewWorkConn:
		return s.workConn(stream, m)
	case *msg.CloseProxy:
		return s.drain(ctx, stream, m)
	default:
		return fmt.Errorf("%w: a connection does not start with %T", errForeign, m)
	}
}

// unread handles a stream whose first message could not be read. An invalid message, or none, ends
// the session: the multiplexer keeps what was sent on a stream that only this end has closed. A
// session that went on could fill the memory with such streams.
func (s *session) unread(err error) error {
	if s.isDone() || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, mux.ErrStreamReset) ||
		errors.Is(err, mux.ErrSessionClosed) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fmt.Errorf("%w: a connection starts with no message: %w", errForeign, err)
}

// workConn gives frps a connection that it asked the agent for.
func (s *session) workConn(stream *link.Stream, m *msg.NewWorkConn) error {
	s.mu.Lock()
	control := s.control
	s.mu.Unlock()
	if control == nil {
		return fmt.Errorf("%w: a work connection before the login", errForeign)
	}
	if err := admitWorkConn(s.replica, m); err != nil {
		return err
	}
	if s.asked.Add(-1) < 0 {
		return fmt.Errorf("%w: a work connection that was not requested", errForeign)
	}
	conn := msg.NewConn(stream, msg.NewV1ReadWriter(stream))
	if err := s.server.engine.controls.RegisterWorkConn(control, proxy.NewWorkConn(conn)); err != nil {
		// More connections were requested than are needed by now: the usual end of a burst.
		return errors.Join(err, sendAnswer(stream, &msg.StartWorkConn{Error: err.Error()}))
	}
	return nil
}

// reachable is called when the agent knows that its proxy runs.
func (s *session) reachable() {
	s.up.Do(func() {
		pxy, ok := s.server.engine.proxies.GetByName(s.replica.proxyName())
		if !ok {
			s.kill(errors.New("the agent's proxy is gone"))
			return
		}
		s.mu.Lock()
		s.proxy = pxy
		s.mu.Unlock()
		known := s.server.agents.reachable(s)
		close(s.ready)
		s.settled()
		s.leave()
		// In a goroutine, because this one belongs to frps and sends what a dial needs.
		s.work.Go(func() { s.server.agents.tell(known) })
		s.log.Info().Str("instance", s.replica.instance).Msg("agent's tunnel is up")
	})
}
