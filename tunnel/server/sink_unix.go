//go:build unix

package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// socket writes to a socket what goes at once. It is for one goroutine at a time.
type socket struct {
	raw  syscall.RawConn
	data []byte
	took int
	once func(fd uintptr) bool
}

func newSocket(conn syscall.Conn) *socket {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{raw: raw}
	s.once = s.write // made once, as it would be with each call
	return s
}

func (s *socket) tryWrite(p []byte) int {
	s.data, s.took = p, 0
	err := s.raw.Write(s.once)
	if s.data = nil; err != nil {
		return 0
	}
	return s.took
}

// write is done after one try, whatever came of it.
func (s *socket) write(fd uintptr) bool {
	n, err := unix.Write(int(fd), s.data)
	if err == nil {
		s.took = n
	}
	return true
}
