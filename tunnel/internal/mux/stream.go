package mux

import (
	"io"
	"net"
	"sync"
	"time"
)

// Stream is a connection of its own inside the session.
type Stream struct {
	id      uint32
	session *Session

	writing sync.Mutex // one Write at a time

	mu         sync.Mutex
	readable   sync.Cond
	writable   sync.Cond
	got        queue
	credit     uint32 // how much the other end may still send
	window     uint32 // what credit and got are together at most
	renewed    time.Time
	room       uint32 // how much may be sent
	opening    bool   // by us, and not accepted yet
	closed     bool   // here
	sent       bool   // nothing more is sent from here
	finished   bool   // nothing more comes
	err        error  // that ended both directions
	readUntil  deadline
	writeUntil deadline
	forget     *time.Timer
}

var (
	_ net.Conn    = (*Stream)(nil)
	_ io.WriterTo = (*Stream)(nil)
)

func newStream(s *Session, id uint32) *Stream {
	stream := &Stream{id: id, session: s, credit: initialWindow, window: initialWindow, room: initialWindow}
	stream.readable.L, stream.writable.L = &stream.mu, &stream.mu
	stream.readUntil.waiter, stream.writeUntil.waiter = &stream.readable, &stream.writable
	return stream
}

// Session returns the stream's session.
func (s *Stream) Session() *Session { return s.session }

// LocalAddr returns the connection's local address.
func (s *Stream) LocalAddr() net.Addr { return s.session.conn.LocalAddr() }

// RemoteAddr returns the connection's remote address.
func (s *Stream) RemoteAddr() net.Addr { return s.session.conn.RemoteAddr() }

// CloseWrite ends what is sent. The other end may go on.
func (s *Stream) CloseWrite() error {
	s.writing.Lock() // a Write is not cut short
	defer s.writing.Unlock()
	s.mu.Lock()
	notify := !s.closed && !s.sent && s.err == nil
	s.sent = true
	s.mu.Unlock()
	if notify {
		s.session.out.put(header{kind: frameWindow, flags: flagFIN, stream: s.id}, false)
	}
	return nil
}

// Close closes both directions: data that the other end still sends is dropped.
func (s *Stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.got.clear()
	over := s.finished || s.err != nil
	notify, reset := s.err == nil && !s.sent, s.sent && !over
	if !over && !reset {
		s.forget = time.AfterFunc(s.session.cfg.CloseTimeout, s.giveUp)
	}
	s.wake()
	s.mu.Unlock()
	if notify {
		s.session.out.put(header{kind: frameWindow, flags: flagFIN, stream: s.id}, false)
	}
	switch {
	case reset: // the other end has the FIN, and does not know that it writes in vain
		s.giveUp()
	case over:
		s.session.remove(s)
	}
	return nil
}

// giveUp frees a stream whose other end has not closed it in time.
func (s *Stream) giveUp() {
	s.end(ErrStreamReset)
	s.session.out.put(header{kind: frameWindow, flags: flagRST, stream: s.id}, false)
}

// flagged handles a frame's flags.
func (s *Stream) flagged(f flags) {
	if f&flagACK != 0 {
		s.accepted()
	}
	if f&flagRST != 0 {
		s.end(ErrStreamReset)
		return
	}
	if f&flagFIN == 0 {
		return
	}
	s.mu.Lock()
	s.finished = true
	over := s.closed
	s.wake()
	s.mu.Unlock()
	if over {
		s.end(net.ErrClosed)
	}
}

// accepted gives back the place of a stream that was being opened.
func (s *Stream) accepted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening {
		s.opening = false
		<-s.session.opening
	}
}

// end ends both directions.
func (s *Stream) end(reason error) {
	s.sessionEnded(reason)
	s.session.remove(s)
}

func (s *Stream) sessionEnded(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = reason
	}
	if s.forget != nil {
		s.forget.Stop()
	}
	s.wake()
}

func (s *Stream) wake() {
	s.readable.Broadcast()
	s.writable.Broadcast()
}

// SetDeadline implements net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readUntil.set(t)
	s.writeUntil.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readUntil.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeUntil.set(t)
	return nil
}
