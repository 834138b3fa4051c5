package link

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// canLook says that look looks.
const canLook = true

// look returns when there is something to read, or when it did not come soon. Whoever else wants the processor
// gets it.
func look(raw syscall.RawConn) {
	runtime.Gosched() // whoever was woken by what came last answers it
	until := time.Now().Add(soon)
	_ = raw.Control(func(fd uintptr) {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a descriptor fits
		for time.Now().Before(until) {
			if n, err := unix.Poll(asked, 0); n > 0 || err != nil && err != unix.EINTR {
				return
			}
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // it cannot fail
		}
	})
}
