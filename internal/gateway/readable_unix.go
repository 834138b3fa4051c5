//go:build unix

package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitReadable waits until a socket has something to read.
func awaitReadable(socket syscall.RawConn) error {
	return socket.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) //nolint:gosec // a descriptor
		return n > 0 || err != nil
	})
}
