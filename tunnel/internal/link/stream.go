package link

import (
	"net"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// Stream is a multiplexed stream with what this end knows about it.
type Stream struct {
	*mux.Stream

	remote  net.Addr
	closing sync.Once
	onClose func()
}

var _ net.Conn = (*Stream)(nil)

// NewStream wraps s; onClose, if not nil, is called once when the stream is closed at this end.
func NewStream(s *mux.Stream, onClose func()) *Stream {
	return &Stream{Stream: s, onClose: onClose}
}

// WithRemote makes RemoteAddr return the far end's own address instead of the tunnel's. It must be
// called before the stream is shared.
func (s *Stream) WithRemote(addr net.Addr) *Stream {
	s.remote = addr
	return s
}

// RemoteAddr returns the far end's address if it is known, otherwise the tunnel's.
func (s *Stream) RemoteAddr() net.Addr {
	if s.remote != nil {
		return s.remote
	}
	return s.Stream.RemoteAddr()
}

// Close closes both directions: data that the far end still sends is dropped.
func (s *Stream) Close() error {
	err := s.Stream.Close()
	s.closing.Do(func() {
		if s.onClose != nil {
			s.onClose()
		}
	})
	return err
}
