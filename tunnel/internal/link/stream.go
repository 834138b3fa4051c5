package link

import (
	"errors"
	"net"
	"os"
	"sync"

	"github.com/hashicorp/yamux"
)

// maxFrame bounds what one write puts into the multiplexer at a time, so that a bulk
// writer takes turns with the other streams and with the keep-alive.
const maxFrame = 64 << 10

// Stream is a multiplexed stream that keeps net.Conn's promises about errors, which
// yamux' own does not: its timeout is no os.ErrDeadlineExceeded and not temporary, so
// crypto/tls takes the aborted background read of net/http for a dead connection, and
// HTTP/1.1 opens a new connection for every request.
type Stream struct {
	*yamux.Stream

	remote  net.Addr
	writing sync.Mutex
	closing sync.Once
	onClose func()
}

var _ net.Conn = (*Stream)(nil)

// NewStream wraps s; onClose, if not nil, is called once when it is closed from here.
func NewStream(s *yamux.Stream, onClose func()) *Stream {
	return &Stream{Stream: s, onClose: onClose}
}

// WithRemote makes RemoteAddr answer with the far end's own address instead of the
// tunnel's. It must be called before the stream is shared.
func (s *Stream) WithRemote(addr net.Addr) *Stream {
	s.remote = addr
	return s
}

// RemoteAddr is the far end's address where it is known, else the tunnel's.
func (s *Stream) RemoteAddr() net.Addr {
	if s.remote != nil {
		return s.remote
	}
	return s.Stream.RemoteAddr()
}

// Read implements net.Conn.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	return n, netError(err)
}

// Write implements net.Conn.
func (s *Stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	written := 0
	for {
		n, err := s.Stream.Write(p[written:min(len(p), written+maxFrame)])
		written += n
		if err != nil || written >= len(p) {
			return written, netError(err)
		}
	}
}

// Close closes both directions: what the far end still sends is dropped.
func (s *Stream) Close() error {
	err := s.Stream.Close()
	s.closing.Do(func() {
		if s.onClose != nil {
			s.onClose()
		}
	})
	return netError(err)
}

func netError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, yamux.ErrTimeout):
		return os.ErrDeadlineExceeded
	case errors.Is(err, yamux.ErrStreamClosed):
		return net.ErrClosed
	default:
		return err
	}
}
