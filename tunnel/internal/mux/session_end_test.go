package mux

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestNoStreamWithoutAnErrorWhileTheSessionEnds opens a stream when writing has failed and the
// session has not been told yet: an opened stream that is none took a whole process with it.
func TestNoStreamWithoutAnErrorWhileTheSessionEnds(t *testing.T) {
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
