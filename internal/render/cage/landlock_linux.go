package cage

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// since lists what each version of Landlock added to what it restricts (landlock(7)).
var since = []struct {
	version            int
	files, net, scoped uint64
}{
	{1, unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1, 0, 0}, // the last of the first thirteen
	{2, unix.LANDLOCK_ACCESS_FS_REFER, 0, 0},
	{3, unix.LANDLOCK_ACCESS_FS_TRUNCATE, 0, 0},
	{4, 0, unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, 0},
	{5, unix.LANDLOCK_ACCESS_FS_IOCTL_DEV, 0, 0},
	{6, 0, 0, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL},
	{9, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX, 0, 0},
	{10, 0, unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP, 0},
}

// rules forbid everything that a version of Landlock restricts: a rule would allow something.
func rules(version int) (r unix.LandlockRulesetAttr) {
	for _, s := range since {
		if version >= s.version {
			r.Handled_access_fs |= s.files
			r.Handled_access_net |= s.net
			r.Scoped |= s.scoped
		}
	}
	return r
}

func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// HasCgo reports whether the program is linked with cgo: Go then refuses calls for all threads.
func HasCgo() bool {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	return errno != 0
}

func landlockOffered() error {
	if _, err := landlockVersion(); err != nil {
		return err
	}
	if HasCgo() {
		return errors.New("a program that is linked with cgo cannot confine all its threads")
	}
	return nil
}

// forbidFiles applies Landlock to all threads.
func forbidFiles() error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	attr := rules(version)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0) //nolint:gosec // the system call takes a pointer
	if errno != 0 {
		return errno
	}
	defer func() { _ = unix.Close(int(fd)) }()
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
