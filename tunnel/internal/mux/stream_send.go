package mux

import (
	"io"
	"net"
	"os"
)

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

// lone reports whether each write so far was answered before the next one, as those of a single
// client with HTTP/1.1 are.
func (s *Stream) lone() bool { return max(s.writes, s.talk) <= 1 }

// awaitRoom returns when the other end takes something, how much, and whether the stream is lone.
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
			return min(wanted, int(s.room)), s.lone(), nil
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
