package timerslack

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Raise has this program begin anew, once, as the same process, where Linux would wake its
// threads sooner than is Wanted: the monitor thread is there before anything of the program runs, and only a
// program inherits for all its threads. It is for the beginning of main. Where it cannot be, all goes on as it was: what
// it saves is CPU.
func Raise() {
	if _, again := os.LookupEnv(envRaised); again {
		_ = os.Unsetenv(envRaised) // it is not for other programs that this one starts
		return
	}
	runtime.LockOSThread() // the one that is asked, is set, and becomes the program
	defer runtime.UnlockOSThread()
	now, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || now >= int(Wanted) {
		return
	}
	self, err := os.Executable()
	if err != nil || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(Wanted), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec(self, os.Args, append(os.Environ(), envRaised+"=yes")) //nolint:gosec // this very program; it returns only when it fails
}
