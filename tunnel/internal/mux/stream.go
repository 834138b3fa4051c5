package mux

import (
	"bufio"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// leastTrip is what two round trips count at least: less is the line's and not that of the
// goroutines at its ends, which wait for their turn at a processor.
const leastTrip = time.Millisecond

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
	sink       Sink   // while WriteTo waits
	writes     int    // since something was received
	talk       int    // what writes was when something was received last
	opening    bool   // by us, and not accepted yet
	closed     bool   // here
	finished   bool   // nothing more comes
	err        error  // that ended both directions
	readUntil  deadline
	writeUntil deadline
	forget     *time.Timer
}

var (
	_ net.Conn      = (*Stream)(nil)
	_ io.WriterTo   = (*Stream)(nil)
	_ io.ReaderFrom = (*Stream)(nil)
)

func newStream(s *Session, id uint32) *Stream {
	stream := &Stream{id: id, session: s, credit: initialWindow, window: initialWindow, room: initialWindow}
	stream.readable.L, stream.writable.L = &stream.mu, &stream.mu
	stream.readUntil.waiter, stream.writeUntil.waiter = &stream.readable, &stream.writable
	return stream
}

// LocalAddr is that of the connection.
func (s *Stream) LocalAddr() net.Addr { return s.session.conn.LocalAddr() }

// RemoteAddr is that of the connection.
func (s *Stream) RemoteAddr() net.Addr { return s.session.conn.RemoteAddr() }

// Read implements net.Conn.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.mu.Lock()
	if err := s.awaitData(); err != nil {
		s.mu.Unlock()
		return 0, err
	}
	n := s.got.read(p)
	more := s.renew()
	s.mu.Unlock()
	s.grant(more)
	return n, nil
}

// WriteTo implements io.WriterTo: it copies nothing between. Small frames go to a Sink while
// it waits, and do not count.
func (s *Stream) WriteTo(w io.Writer) (total int64, err error) {
	sink, _ := w.(Sink)
	for {
		s.mu.Lock()
		s.sink = sink
		err := s.awaitData()
		s.sink = nil
		if err != nil {
			s.mu.Unlock()
			if err == io.EOF { //nolint:errorlint // our own
				err = nil
			}
			return total, err
		}
		c := s.got.pop()
		more := s.renew()
		s.mu.Unlock()
		n, err := w.Write(c.unread())
		c.free()
		if total += int64(n); err != nil {
			return total, err
		}
		s.grant(more)
	}
}

// awaitData returns when there is something to read, or why there will be nothing.
func (s *Stream) awaitData() error {
	for {
		switch {
		case s.closed:
			return net.ErrClosed
		case s.readUntil.passed():
			return os.ErrDeadlineExceeded
		case s.got.size > 0:
			return nil
		case s.err != nil:
			return s.err
		case s.finished:
			return io.EOF
		}
		s.readUntil.wait()
	}
}

// renew is how much more the other end may send, zero while that is not worth a frame. Where
// half a window is used up in two round trips, the window may hold the sender up, and doubles.
// In one would not do: a stream that has carried something before may come to have all that
// is on its way wait for the one half that was granted last, so that there is one grant in each
// round trip and a moment, for good.
func (s *Stream) renew() uint32 {
	more := s.window - uint32(s.got.size) - s.credit //nolint:gosec // never above the window
	if more < s.window/2 || s.finished || s.err != nil {
		return 0
	}
	now := time.Now()
	if most := s.session.cfg.MaxWindow; s.window < most && now.Sub(s.renewed) < max(2*s.session.life.roundTrip(), leastTrip) {
		grown := min(s.window, most-s.window)
		s.window += grown
		more += grown
	}
	s.renewed = now
	s.credit += more
	return more
}

func (s *Stream) grant(more uint32) {
	if more > 0 {
		s.session.out.put(header{kind: frameWindow, stream: s.id, length: more}, false)
	}
}

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (int, error) { return s.write(p, nil) }

// write writes p. The frame, where it is known, is p with room for a header before it.
func (s *Stream) write(p, frame []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for written < len(p) {
		most, lone, err := s.awaitRoom(len(p) - written)
		if err != nil {
			return written, err
		}
		if most < len(p) {
			frame = nil
		}
		n, err := s.session.out.send(s.id, p[written:written+most], frame, lone)
		if err != nil {
			return written, s.ended(err)
		}
		written += n
		s.mu.Lock()
		s.room -= uint32(n) //nolint:gosec // at most what there was
		s.mu.Unlock()
	}
	return written, nil
}

// pieces are what ReadFrom reads into: a frame that is two TLS records of the tunnel, with its
// header.
var pieces = sync.Pool{New: func() any { return new([2 * maxRecord]byte) }}

// ReadFrom implements io.ReaderFrom: what is read goes to the system from where it was read
// to, if nothing is in the way.
func (s *Stream) ReadFrom(r io.Reader) (total int64, err error) {
	piece := pieces.Get().(*[2 * maxRecord]byte)
	defer pieces.Put(piece)
	for {
		n, err := r.Read(piece[headerSize:])
		if n > 0 {
			written, werr := s.write(piece[headerSize:headerSize+n], piece[:headerSize+n])
			if total += int64(written); werr != nil {
				return total, werr
			}
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// awaitRoom returns when the other end takes something, and how much. It is lone when the
// stream's habit is one write for each answer, so that none is about to follow.
func (s *Stream) awaitRoom(wanted int) (most int, lone bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, false, net.ErrClosed
		case s.err != nil:
			return 0, false, s.err
		case s.writeUntil.passed():
			return 0, false, os.ErrDeadlineExceeded
		case s.room > 0:
			s.writes++
			return min(wanted, int(s.room)), s.writes == 1 && s.talk <= 1, nil
		}
		s.writeUntil.wait()
	}
}

// ended is why the stream is over, which says more than what happened to its session.
func (s *Stream) ended(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return err
}

// Close closes both directions: what the other end still sends is dropped.
func (s *Stream) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.got.clear()
	over := s.finished || s.err != nil
	tell := s.err == nil
	if !over {
		s.forget = time.AfterFunc(s.session.cfg.CloseTimeout, s.giveUp)
	}
	s.wake()
	s.mu.Unlock()
	if tell {
		s.session.out.put(header{kind: frameWindow, flags: flagFIN, stream: s.id}, false)
	}
	if over {
		s.session.remove(s)
	}
	return nil
}

// giveUp frees a stream whose other end has not closed it in time.
func (s *Stream) giveUp() {
	s.end(ErrStreamReset)
	s.session.out.put(header{kind: frameWindow, flags: flagRST, stream: s.id}, false)
}

// flagged is told what a frame said beside its data.
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

// moreRoom is told that the other end takes more.
func (s *Stream) moreRoom(more uint32) {
	if more == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = max(s.room, s.room+more) // never less, whatever it says
	s.writable.Broadcast()
}

// mayReceive says whether the other end keeps to what it may send.
func (s *Stream) mayReceive(length uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return length <= s.credit
}

// take takes what was received.
func (s *Stream) take(c *chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.credit -= uint32(c.end) //nolint:gosec // mayReceive has looked
	if s.closed {
		c.free()
		return
	}
	s.got.push(c)
	s.heard()
	s.readable.Signal()
}

// takeSpare takes n bytes that are there for the reading, where the last chunk has room for
// them.
func (s *Stream) takeSpare(in *bufio.Reader, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.got.spare()
	if len(spare) < n {
		return false
	}
	_, _ = io.ReadFull(in, spare[:n]) // they are in memory
	s.got.extend(n)
	s.credit -= uint32(n) //nolint:gosec // mayReceive has looked
	s.heard()
	s.readable.Signal()
	return true
}

// heard notes that something was received.
func (s *Stream) heard() {
	if s.writes > 0 {
		s.talk, s.writes = s.writes, 0
	}
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
