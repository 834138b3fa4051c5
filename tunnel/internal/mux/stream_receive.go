package mux

import (
	"io"
	"net"
	"os"
	"time"
)

// leastTrip is what two round trips count at least: less is the line's and not that of the
// goroutines at its ends, which wait for their turn at a processor.
const leastTrip = time.Millisecond

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

// WriteTo implements io.WriterTo, without a copy in between.
func (s *Stream) WriteTo(w io.Writer) (total int64, err error) {
	for {
		s.mu.Lock()
		if err := s.awaitData(); err != nil {
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
		case s.finished:
			return io.EOF
		case s.err != nil:
			return s.err
		}
		s.readUntil.wait()
	}
}

// renew returns how much more the other end may send, zero while that is not worth a frame. Where
// half a window is used up in two round trips, the window may hold the sender up, and doubles. In
// one would not do: a stream that has carried something before may come to have all that is on its
// way wait for the one half that was granted last, so that there is one grant in each round trip
// and a moment, for good.
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

// mayReceive reports whether the other end keeps to what it may send.
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
	s.readable.Signal()
}

// takeSpare takes n bytes that are there for the reading, where the last chunk has room for
// them.
func (s *Stream) takeSpare(in *input, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	spare := s.got.spare()
	if len(spare) < n {
		return false
	}
	_, _ = io.ReadFull(in, spare[:n]) // they are in memory
	s.got.extend(n)
	s.credit -= uint32(n) //nolint:gosec // mayReceive has looked
	s.readable.Signal()
	return true
}
