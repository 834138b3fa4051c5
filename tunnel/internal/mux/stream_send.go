package mux

import (
	"io"
	"net"
	"os"
	"runtime"
)

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (int, error) { return s.write(p, nil) }

// write writes p. The frame, where it is known, is p with room for a header before it.
func (s *Stream) write(p, frame []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for written < len(p) {
		most, how, err := s.awaitRoom(len(p) - written)
		if err != nil {
			return written, err
		}
		if most < len(p) {
			frame = nil
		}
		n, err := s.session.out.send(s.id, p[written:written+most], frame, how)
		if err != nil {
			return written, s.ended(err)
		}
		written += n
		s.mu.Lock()
		s.room -= uint32(n) //nolint:gosec // at most what there was
		s.mu.Unlock()
		s.share(n)
	}
	return written, nil
}

// bulkFrame is more than answers and requests mostly have: HTTP/2 gathers its frames in 4 KiB, to which TLS adds.
const bulkFrame = 8 << 10

// share has whoever writes bulk give way after a frame of n bytes, if other streams have written small ones since it did so last: whoever
// waits for those needs the processor, too.
func (s *Stream) share(n int) {
	all := &s.session.small
	if n <= bulkFrame {
		s.small++
		all.Add(1)
		return
	}
	if others := all.Load() - s.small; others != s.others {
		s.others = others
		runtime.Gosched()
		s.session.courtesy.giveWay()
	}
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
		if err == nil && n <= smallFrame && s.ahead() {
			s.session.courtesy.giveWay()
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// manner is what to expect after a write, by how the stream was used so far.
type manner int

const (
	// busy: more, at any time.
	busy manner = iota
	// brief: it is the first or the second since something was received, and the habit is no more than two for each
	// answer. That is one client with HTTP/2.
	brief
	// lone: it is the only one for each answer. That is one client with HTTP/1.1.
	lone
)

func (s *Stream) manner() manner {
	switch most := max(s.writes, s.talk); {
	case most <= 1:
		return lone
	case most <= 2:
		return brief
	default:
		return busy
	}
}

// ahead says whether more is written before it is answered, as by many clients on one connection.
func (s *Stream) ahead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manner() != lone
}

// awaitRoom returns when the other end takes something, and how much.
func (s *Stream) awaitRoom(wanted int) (most int, how manner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, busy, net.ErrClosed
		case s.err != nil:
			return 0, busy, s.err
		case s.writeUntil.passed():
			return 0, busy, os.ErrDeadlineExceeded
		case s.room > 0:
			s.writes++
			return min(wanted, int(s.room)), s.manner(), nil
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
