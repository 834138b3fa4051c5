//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// attempt is a way out of the cage.
type attempt struct {
	name string
	try  func() error
}

// outcome returns an error's number, such as EPERM; empty for none.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// prepare returns the attempts that work outside of the cage, with what an attacker could have
// before the cage is closed.
func prepare(w witnesses) ([]attempt, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return []attempt{
		{"read /etc/passwd", func() error { _, err := os.ReadFile("/etc/passwd"); return err }},
		{"read the token", func() error { _, err := os.ReadFile(w.Token); return err }},
		{"read the parent's environment", func() error { _, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getppid())); return err }},
		{"list a folder", func() error { _, err := os.ReadDir("/"); return err }},
		{"write a file", func() error { return os.WriteFile(w.Folder+"/written", nil, 0o600) }},
		{"make a folder", func() error { return os.Mkdir(w.Folder+"/folder", 0o700) }},
		{"remove a file", func() error { return os.Remove(w.Victim) }},
		{"read an inherited file", inherited},
		{"connect a TCP socket", func() error {
			return unix.Connect(socket, &unix.SockaddrInet4{Port: w.Port, Addr: [4]byte{127, 0, 0, 1}})
		}},
		{"dial TCP", dial("tcp", fmt.Sprintf("127.0.0.1:%d", w.Port))},
		{"dial UDP", dial("udp", fmt.Sprintf("127.0.0.1:%d", w.Port))},
		{"dial a unix socket", dial("unix", w.Socket)},
		{"dial an abstract unix socket", dial("unix", w.Abstract)},
		{"listen", func() error {
			l, err := net.Listen("tcp4", "127.0.0.1:0") //nolint:noctx // it is refused at once
			if err == nil {
				err = l.Close()
			}
			return err
		}},
		{"run a program", func() error {
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
			if err == nil {
				_, err = p.Wait()
			}
			return err
		}},
		{"signal the parent", func() error { return unix.Kill(os.Getppid(), 0) }},
		{"fork", fork},
	}, nil
}

// inherited looks for a file that the parent left open, and whose content is "secret".
func inherited() error {
	err := error(unix.EBADF)
	for fd := 3; fd < 16; fd++ {
		content := make([]byte, 6)
		if _, failed := unix.Pread(fd, content, 0); failed == nil && string(content) == "secret" {
			return nil
		} else if failed != nil {
			err = failed
		}
	}
	return err
}

func dial(network, address string) func() error {
	return func() error {
		c, err := net.Dial(network, address) //nolint:noctx // it is refused at once
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

// fork makes a process as fork(2) does.
func fork() error {
	child, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if child == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	_, err := unix.Wait4(int(child), nil, 0, nil)
	return err
}

// calls are made without useful arguments, and only where there is a filter, which does not look at
// them: without it, some would confine or stop the process.
var calls = []attempt{
	call("execve", unix.SYS_EXECVE), call("execveat", unix.SYS_EXECVEAT), call("ptrace", unix.SYS_PTRACE),
	call("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT), call("openat2", unix.SYS_OPENAT2), call("memfd_create", unix.SYS_MEMFD_CREATE),
	call("socketpair", unix.SYS_SOCKETPAIR), call("bind", unix.SYS_BIND), call("sendto", unix.SYS_SENDTO),
	call("mount", unix.SYS_MOUNT), call("unshare", unix.SYS_UNSHARE), call("setns", unix.SYS_SETNS), call("bpf", unix.SYS_BPF),
	call("io_uring_setup", unix.SYS_IO_URING_SETUP), call("io_uring_enter", unix.SYS_IO_URING_ENTER), call("io_uring_register", unix.SYS_IO_URING_REGISTER),
	call("process_vm_readv", unix.SYS_PROCESS_VM_READV), call("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV),
	call("pidfd_open", unix.SYS_PIDFD_OPEN), call("pidfd_getfd", unix.SYS_PIDFD_GETFD), call("keyctl", unix.SYS_KEYCTL), call("add_key", unix.SYS_ADD_KEY),
	call("userfaultfd", unix.SYS_USERFAULTFD), call("perf_event_open", unix.SYS_PERF_EVENT_OPEN), call("seccomp", unix.SYS_SECCOMP),
	call("prlimit64", unix.SYS_PRLIMIT64), call("ioctl", unix.SYS_IOCTL), call("fcntl", unix.SYS_FCNTL),
}

func call(name string, number uintptr) attempt {
	return attempt{name, func() error {
		if _, _, errno := unix.Syscall6(number, 0, 0, 0, 0, 0, 0); errno != 0 {
			return errno
		}
		return nil
	}}
}
