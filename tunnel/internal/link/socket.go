package link

import (
	"net"
	"sync"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// socketSize is what a batch mostly is as TLS records. It grows where one has many small
// frames.
const socketSize = 34 << 10

var records = sync.Pool{New: func() any { b := make([]byte, 0, socketSize); return &b }}

// Socket is the connection below the tunnel's TLS. It can hold back writes until they are complete:
// crypto/tls writes each record in its own system call.
type Socket struct {
	net.Conn

	mu   sync.Mutex
	held *[]byte // nil when nothing is held back
}

// NewSocket readies a connection for the tunnel.
func NewSocket(conn net.Conn) *Socket {
	tune(conn)
	return &Socket{Conn: conn}
}

// tune asks the system for what bulk and small frames need to live side by side. What it
// does not know stays as it is.
func tune(conn net.Conn) {
	system, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := system.SyscallConn(); err == nil {
		_ = raw.Control(limitUnsent)
	}
}

// Write implements net.Conn.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return s.Conn.Write(p)
	}
	*s.held = append(*s.held, p...)
	return len(p), nil
}

// corked returns the socket as the multiplexer knows it: no socket is none there, too.
func (s *Socket) corked() mux.Corked {
	if s == nil {
		return nil
	}
	return s
}

// Cork holds back all following writes.
func (s *Socket) Cork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = records.Get().(*[]byte)
}

// Uncork writes what was held back.
func (s *Socket) Uncork() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.Conn.Write(*s.held)
	*s.held = (*s.held)[:0]
	records.Put(s.held)
	s.held = nil
	return err
}
