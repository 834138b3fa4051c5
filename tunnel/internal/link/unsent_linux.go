package link

import "golang.org/x/sys/unix"

// unsentLimit is how much the kernel takes beyond what it has sent. What waits there cannot
// be overtaken: the less it is, the sooner a small frame goes out beside bulk.
const unsentLimit = 64 << 10

func limitUnsent(fd uintptr) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
}
