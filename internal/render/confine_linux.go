package render

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// confine takes from this process what it does not need. What the pod's memory is too small
// for, the kernel takes from it and not from the agent.
func confine() error {
	have, err := mapped()
	if err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: have + growth, Max: have + growth}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit the core dump: %w", err)
	}
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("be the first to go when memory runs out: %w", err)
	}
	return nil
}

// growth is what may be mapped beside what the process begins with. Go maps its heap in
// arenas of 64 MiB, of which it has one from the start: with less than that more there is
// room for stacks and the collector's notes, and never for a second arena.
const growth = 48 << 20

// mapped returns how much private memory this process could write now (proc_pid_status(5)).
func mapped() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmData:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmData")
}

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
