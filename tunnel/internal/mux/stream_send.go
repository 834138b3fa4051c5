package mux

import (
	"net"
	"os"
)

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for written < len(p) {
		most, err := s.awaitRoom(len(p) - written)
		if err != nil {
			return written, err
		}
		n, err := s.session.out.data(s.id, p[written:written+most])
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

// awaitRoom waits until the other end accepts data, and returns how much.
func (s *Stream) awaitRoom(wanted int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed || s.sent:
			return 0, net.ErrClosed
		case s.err != nil:
			return 0, s.err
		case s.writeUntil.passed():
			return 0, os.ErrDeadlineExceeded
		case s.room > 0:
			return min(wanted, int(s.room)), nil
		}
		s.writeUntil.wait()
	}
}

// ended returns why the stream is over, which is more specific than the session's error.
func (s *Stream) ended(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return err
}

// moreRoom is called when the other end accepts more.
func (s *Stream) moreRoom(more uint32) {
	if more == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = max(s.room, s.room+more) // never less, even if the value overflows
	s.writable.Broadcast()
}
