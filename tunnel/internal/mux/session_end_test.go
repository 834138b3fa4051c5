package mux

import (
	"errors"
	"net"
	"testing"
	"time"
)

// Writing has failed and the session does not know yet. A nil stream without an error took a
// whole process with it.
func TestOpenStream_WhileSessionEnds(t *testing.T) {
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	s := Client(near, nil, Config{KeepAlive: time.Minute, WriteTimeout: time.Minute, MaxWindow: 1 << 20, CloseTimeout: time.Minute})
	defer func() { _ = s.Close() }()
	s.out.mu.Lock()
	s.out.err = errors.New("broken pipe")
	s.out.mu.Unlock()
	if stream, err := s.OpenStream(); err == nil {
		t.Errorf("opened %v", stream)
	}
}
