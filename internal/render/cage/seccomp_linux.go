package cage

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// allowed are the system calls that Go's runtime makes, and what it takes to read and write files
// that are open. Those of the second line are the C library's, which only the race detector uses.
var allowed = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,

	unix.SYS_MPROTECT, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
}

// bounded is a system call that is allowed if its first argument has these bits of a mask.
type bounded struct{ call, mask, bits uint32 }

// threads is the mask of clone's flags: new threads are allowed, processes and namespaces are not.
const threads = unix.CLONE_THREAD | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func boundedOf(pid uint32) []bounded {
	return []bounded{
		{unix.SYS_CLONE, threads, unix.CLONE_THREAD},
		{unix.SYS_TGKILL, 0xffffffff, pid}, // the runtime preempts and aborts by signals
		{unix.SYS_KILL, 0xffffffff, pid},
		{unix.SYS_PRCTL, 0xffffffff, unix.PR_SET_VMA}, // the runtime names its memory
	}
}

// Offsets in struct seccomp_data (seccomp(2)), on little-endian machines.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArg  = 16
)

// archs are the machines that the filter knows. Each has its own numbers for system calls.
var archs = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// filter refuses what is not allowed, with EPERM. Calls of another machine's kind are not allowed.
func filter(arch, pid uint32) []bpf.Instruction {
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	f := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1}, refuse,
		bpf.LoadAbsolute{Off: offsetCall, Size: 4},
		// Its flags are in memory, where no filter reads. libc then uses clone.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE3, SkipFalse: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	for _, call := range allowed {
		f = append(f, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipFalse: 1}, allow)
	}
	for _, b := range boundedOf(pid) {
		f = append(f, bpf.JumpIf{Cond: bpf.JumpEqual, Val: b.call, SkipFalse: 5},
			bpf.LoadAbsolute{Off: offsetArg, Size: 4}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: b.mask},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: b.bits, SkipFalse: 1}, allow, refuse)
	}
	return append(f, refuse)
}

// seccomp sets a filter for all threads; nil asks whether that is possible.
func seccomp(program *unix.SockFprog) (uintptr, error) {
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(program))) //nolint:gosec // the system call takes a pointer
	if errno != 0 {
		return 0, errno
	}
	return thread, nil
}

func seccompOffered() error {
	if archs[runtime.GOARCH] == 0 {
		return errors.New("there is no filter for " + runtime.GOARCH)
	}
	if _, err := seccomp(nil); !errors.Is(err, unix.EFAULT) {
		return err
	}
	return nil
}

// forbidCalls lets the kernel refuse the system calls that the process does not need.
func forbidCalls() error {
	raw, err := bpf.Assemble(filter(archs[runtime.GOARCH], uint32(os.Getpid()))) //nolint:gosec // a process ID is positive
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	thread, err := seccomp(&unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}) //nolint:gosec // the filter is far shorter than 65 536 instructions
	if err == nil && thread != 0 {
		err = fmt.Errorf("thread %d has its own filter", thread)
	}
	return err
}
