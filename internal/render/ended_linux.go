package render

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
)

// outOfMemory reports whether a child ended because its limit left it no memory, by the message of
// Go's runtime.
func outOfMemory(err error, said string) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && (strings.Contains(said, "out of memory") || strings.Contains(said, "cannot allocate memory") ||
		// What its collector gets no memory for it takes for a pointer.
		strings.HasPrefix(said, "SIGSEGV") && strings.Contains(said, "\nruntime."))
}

// killed reports whether the kernel ended a child, which it does where the pod or the node has no
// memory left.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}
