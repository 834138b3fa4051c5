package gateway

import "syscall"

// awaitReadable waits until a socket has something to read. On Windows, Read itself peeks at the
// socket between two calls of the function.
func awaitReadable(socket syscall.RawConn) error {
	asked := false
	return socket.Read(func(uintptr) bool {
		defer func() { asked = true }()
		return asked
	})
}
