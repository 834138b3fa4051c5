package mux

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
)

// backlog is how many streams may have been opened that the other end has not accepted: what
// hashicorp's library has.
const backlog = 256

// Session is one connection with streams on it.
type Session struct {
	cfg  Config
	conn net.Conn
	in   *input
	out  *batch
	life heartbeat

	mu       sync.Mutex
	streams  map[uint32]*Stream
	nextID   uint32
	refuses  bool // the other end wants no more streams
	err      error
	opening  chan struct{} // a place for each stream that is not accepted yet
	done     chan struct{} // closed when the session is over
	received chan struct{} // closed when nothing is read any more
}

// Client begins a session on a connection, at the end that has dialled. below is the socket to
// which its TLS writes, nil if that is unknown. The session owns the connection.
func Client(conn net.Conn, below Corked, cfg Config) *Session {
	s := begin(conn, below, cfg, 1)
	go s.receive()
	return s
}

// Server is like Client at the end that has accepted the connection. The caller calls Serve.
func Server(conn net.Conn, below Corked, cfg Config) *Session { return begin(conn, below, cfg, 2) }

// Serve reads until the session's end, and returns why it ended. It is for a goroutine that has
// nothing else to do meanwhile: with thousands of sessions, one more goroutine for each is a large
// part of their cost.
func (s *Session) Serve() error {
	s.receive()
	return s.ended()
}

func begin(conn net.Conn, below Corked, cfg Config, first uint32) *Session {
	s := &Session{
		cfg: cfg, conn: conn, in: newInput(conn), nextID: first,
		streams: map[uint32]*Stream{}, opening: make(chan struct{}, backlog),
		done: make(chan struct{}), received: make(chan struct{}),
	}
	s.out = newBatch(conn, below, cfg.WriteTimeout, s.fail)
	s.life.start(s)
	return s
}

// OpenStream opens one.
func (s *Session) OpenStream() (*Stream, error) {
	select {
	case s.opening <- struct{}{}:
	case <-s.done:
		return nil, s.ended()
	}
	stream, err := s.newOwn()
	if err != nil {
		<-s.opening
		return nil, err
	}
	if !s.out.put(header{kind: frameWindow, flags: flagSYN, stream: stream.id}, false) {
		s.remove(stream)
		return nil, s.unsent()
	}
	return stream, nil
}

func (s *Session) newOwn() (*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case s.refuses:
		return nil, ErrGoAway
	case s.nextID >= math.MaxUint32-1:
		return nil, errExhausted
	}
	stream := newStream(s, s.nextID)
	stream.opening = true
	s.nextID += 2
	s.streams[stream.id] = stream
	return stream, nil
}

// Open is like OpenStream and returns a net.Conn.
func (s *Session) Open() (net.Conn, error) {
	stream, err := s.OpenStream()
	if err != nil {
		return nil, err // no nil *Stream in the interface
	}
	return stream, nil
}

// NumStreams returns how many streams there are, those included that only one end has closed.
func (s *Session) NumStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// CloseChan returns a channel that is closed when the session is over.
func (s *Session) CloseChan() <-chan struct{} { return s.done }

// ended returns why the session is over, or nothing.
func (s *Session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// unsent returns why a frame was not taken: never nothing, although the batch knows of its end a
// moment before the session does.
func (s *Session) unsent() error {
	if err := s.ended(); err != nil {
		return err
	}
	return s.out.ended()
}

// Close ends the session and all its streams, and returns when it has ended. It sends earlier
// writes, if that does not take long.
func (s *Session) Close() error {
	err := s.end(ErrSessionClosed, func() error { return s.out.close() })
	<-s.received
	return err
}

// fail ends the session at once.
func (s *Session) fail(err error) {
	_ = s.end(err, s.conn.Close) // there is a reason already
}

// end ends the session for the first reason that is given.
func (s *Session) end(reason error, hangUp func() error) error {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return nil //nolint:nilerr // it is over
	}
	s.err = reason
	streams := s.streams
	s.streams = map[uint32]*Stream{}
	s.mu.Unlock()
	s.life.stop()
	close(s.done)                  // first of all: on a dead connection hanging up may take seconds
	if errors.Is(reason, io.EOF) { // which of a stream means that all of it has come
		reason = io.ErrUnexpectedEOF
	}
	for _, stream := range streams {
		stream.sessionEnded(reason)
	}
	return hangUp()
}

func (s *Session) remove(stream *Stream) {
	s.mu.Lock()
	if s.streams[stream.id] == stream {
		delete(s.streams, stream.id)
	}
	s.mu.Unlock()
	stream.accepted()
}
