package wrapconn

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ended reports whether the other end of a connection has closed it and there is nothing more to
// read. It does not wait, and takes nothing from what there is to read.
func Ended(c net.Conn) bool {
	system, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return false
	}
	var ended bool
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		n, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = err == nil && n == 0 || err == unix.ECONNRESET
	})
	return err == nil && ended
}
