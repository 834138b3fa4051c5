//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// partCalls are the system calls of the cage's parts.
var partCalls = map[string]uint32{"landlock": unix.SYS_LANDLOCK_CREATE_RULESET, "seccomp": unix.SYS_SECCOMP}

// without replaces this process by a command for which the kernel has not these parts.
func without(names, command []string) error {
	runtime.LockOSThread() // the filter is this thread's, and so is execve
	filter := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	for _, name := range names {
		number, known := partCalls[name]
		if !known {
			return fmt.Errorf("no part of the cage is called %q", name)
		}
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipFalse: 1},
			bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	}
	raw, err := bpf.Assemble(append(filter, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	return unix.Exec(command[0], command, os.Environ())
}
