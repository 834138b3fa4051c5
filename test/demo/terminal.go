package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// defaultWidth is for an output that is not a terminal.
const defaultWidth = 160

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// width returns how many columns lines may have.
func width() int {
	if w, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && w > 0 {
		return w
	}
	return defaultWidth
}

// ownTerminal makes the demo its own process group in the terminal's foreground, and returns
// what gives the terminal back. make would get Ctrl-C too otherwise, and calls a recipe failed
// then, however well it ended.
func ownTerminal() (giveBack func()) {
	const fd = 0
	before, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || before != unix.Getpgrp() || before == unix.Getpid() {
		return func() {} // no terminal, in the background, or alone already
	}
	if err := unix.Setpgid(0, 0); err != nil {
		return func() {}
	}
	foreground(fd, unix.Getpid())
	signal.Ignore(syscall.SIGTSTP) // the shell would not see that Ctrl-Z stopped it
	return func() { foreground(fd, before) }
}

// foreground gives the terminal to a process group. The kernel stops a background process that does
// that, unless SIGTTOU is ignored.
func foreground(fd, group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group)
}
