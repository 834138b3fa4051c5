package mux

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
)

// backlog is how many streams may wait to be accepted, and how many may have been opened
// that the other end has not accepted: what hashicorp's library has.
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
	accepts  chan *Stream  // nil where streams are given to Config.Accept
	opening  chan struct{} // a place for each stream that is not accepted yet
	done     chan struct{} // closed when the session is over
	received chan struct{} // closed when nothing is read any more
}

// Client begins a session on a connection, at the end that has dialled; below is what its
// TLS writes to, nil where that is not known. The session owns the connection.
func Client(conn net.Conn, below Corked, cfg Config) *Session {
	s := begin(conn, below, cfg, 1)
	go s.receive()
	return s
}

// Server is Client at the end that has accepted the connection.
func Server(conn net.Conn, below Corked, cfg Config) *Session {
	s := NewServer(conn, below, cfg)
	go s.receive()
	return s
}

// NewServer is Server for those who call Serve, which they must.
func NewServer(conn net.Conn, below Corked, cfg Config) *Session { return begin(conn, below, cfg, 2) }

// Serve reads what comes until the session's end, and answers why it ended. It is for a goroutine
// that has nothing else to do meanwhile: with thousands of sessions one more each is a good part
// of what they cost.
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
	if cfg.Accept == nil {
		s.accepts = make(chan *Stream, backlog)
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
		return nil, s.ended()
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

// Open is OpenStream for those who want a net.Conn.
func (s *Session) Open() (net.Conn, error) {
	stream, err := s.OpenStream()
	if err != nil {
		return nil, err // no nil *Stream in the interface
	}
	return stream, nil
}

// AcceptStream waits for one that the other end opens.
func (s *Session) AcceptStream() (*Stream, error) {
	select {
	case stream := <-s.accepts:
		if !s.out.put(header{kind: frameWindow, flags: flagACK, stream: stream.id}, false) {
			return nil, s.ended()
		}
		return stream, nil
	case <-s.done:
		return nil, s.ended()
	}
}

// NumStreams is how many streams there are, those included that only one end has closed.
func (s *Session) NumStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// CloseChan is closed when the session is over.
func (s *Session) CloseChan() <-chan struct{} { return s.done }

// ended is why the session is over, or about to be: a write that failed ends the sending before it ends the session.
func (s *Session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return ErrSessionClosed
	}
	return s.err
}

// Close ends the session and all its streams, and returns when it has ended. What was
// written before is sent, if that does not take long.
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

func (s *Session) receive() {
	defer close(s.received)
	for {
		h, err := s.readHeader()
		if err == nil {
			err = s.handle(h)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *Session) readHeader() (header, error) {
	b, err := s.in.Peek(headerSize)
	if err != nil {
		return header{}, err
	}
	h, ok := parseHeader(b)
	if !ok {
		return header{}, fmt.Errorf("%w: version %d, type %d", ErrProtocol, b[0], b[1])
	}
	s.in.Discard(headerSize)
	s.in.heard(h)
	return h, nil
}

// handle is called in the goroutine that reads, which must not wait for the other end to
// read: both would wait for each other.
func (s *Session) handle(h header) error {
	switch h.kind {
	case framePing:
		return s.handlePing(h)
	case frameGoAway:
		if h.length != goAwayNormal {
			return fmt.Errorf("%w: the other end goes away (%d)", ErrProtocol, h.length)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refuses = true
		return nil
	}
	stream, opened, err := s.streamOf(h)
	if err != nil {
		return err
	}
	if stream == nil {
		return s.skip(h)
	}
	if opened && s.cfg.Accept != nil {
		s.cfg.Accept(stream)
	}
	if h.kind == frameWindow {
		stream.moreRoom(h.length)
	} else if err := s.receiveData(stream, h.length); err != nil {
		return err
	}
	stream.flagged(h.flags)
	return nil
}

// streamOf is whom a frame is for, and whether it opens that stream: nobody when the stream is
// gone already.
func (s *Session) streamOf(h header) (stream *Stream, opened bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream = s.streams[h.stream]
	if h.flags&flagSYN == 0 || s.err != nil {
		return stream, false, nil
	}
	if stream != nil || h.stream%2 == s.nextID%2 {
		return nil, false, s.complain("stream %d is opened again", h.stream)
	}
	answer := header{kind: frameWindow, flags: flagACK, stream: h.stream}
	stream = newStream(s, h.stream)
	if s.accepts != nil {
		select {
		case s.accepts <- stream: // AcceptStream answers
			s.streams[h.stream] = stream
			return stream, true, nil
		default: // nobody accepts
			stream, answer.flags = nil, flagRST
		}
	}
	if !s.out.put(answer, true) {
		return nil, false, s.complain("too many streams at once")
	}
	if stream != nil {
		s.streams[h.stream] = stream
	}
	return stream, stream != nil, nil
}

// complain words what the other end did against the protocol, and tells it.
func (s *Session) complain(format string, args ...any) error {
	s.out.put(header{kind: frameGoAway, length: goAwayProtocol}, true)
	return fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, args...)...)
}

func (s *Session) skip(h header) error {
	if h.kind != frameData {
		return nil
	}
	_, err := io.CopyN(io.Discard, s.in, int64(h.length))
	return err
}

// receiveData reads a frame's body, piece by piece as it comes.
func (s *Session) receiveData(stream *Stream, length uint32) error {
	if !stream.mayReceive(length) {
		return s.complain("more data than stream %d has room for", stream.id)
	}
	for left := int(length); left > 0; {
		if left <= s.in.Buffered() && (stream.pass(s.in, left) || stream.takeSpare(s.in, left)) {
			return nil
		}
		c := newChunk(left)
		n, err := io.ReadFull(s.in, c.memory[:min(left, len(c.memory))])
		if err != nil {
			c.free()
			return err
		}
		c.end = n
		stream.take(c)
		left -= n
	}
	return nil
}

func (s *Session) remove(stream *Stream) {
	s.mu.Lock()
	if s.streams[stream.id] == stream {
		delete(s.streams, stream.id)
	}
	s.mu.Unlock()
	stream.accepted()
}
