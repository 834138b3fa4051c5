package cage

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// limit applies the limits that every kernel has. If the pod's memory is too small, the kernel
// takes it from this process and not from the agent.
func limit(growth int64) error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("be the first to go when memory runs out: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limit the core dump: %w", err)
	}
	have, err := mapped()
	if err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	most := have + uint64(growth) //nolint:gosec // a limit of ours, above zero
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("limit the memory: %w", err)
	}
	return nil
}

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

// closeInherited closes the files that the parent left open, except standard input and outputs.
// What Go opened itself is marked to be closed by execve(2), so it is not inherited.
func closeInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}

// forbidOpening lets the process open no further file or socket, on any kernel.
func forbidOpening() error {
	// Go's runtime opens what timers need when the first one starts.
	time.AfterFunc(time.Hour, func() {}).Stop()
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{})
}
