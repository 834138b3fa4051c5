package harness

import (
	"errors"
	"fmt"
	"syscall"
)

// errNotRunning means that there is no process to send a signal to.
var errNotRunning = errors.New("it does not run")

// Program is one of the product's programs beside the system's own: another control plane, or an
// agent that is not a pod. It can be killed, held, and started again with the same arguments.
type Program struct{ *process }

// NewProgram returns a program with its arguments; nothing runs yet. Its log is in the system's
// directory.
func (s *System) NewProgram(name, path string, args, env []string) *Program {
	return &Program{newProcess(s.Dir, name, path, args, env)}
}

// Start starts the program, and does not wait until it is ready.
func (p *Program) Start() error { return p.start() }

// Kill ends the program as a crash would, also while it is held.
func (p *Program) Kill() error { return p.kill() }

// Close stops the program in order.
func (p *Program) Close() error { return p.stop() }

// Running reports whether the program lives.
func (p *Program) Running() bool { return p.running() }

// LastLines returns the end of the program's log.
func (p *Program) LastLines(n int) string { return p.lastLines(n) }

// PID returns the process; 0 if none was started.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Hold suspends the program: it stops responding, and its connections stay.
func (p *Program) Hold() error { return p.send(syscall.SIGSTOP) }

// Resume continues the program after Hold.
func (p *Program) Resume() error { return p.send(syscall.SIGCONT) }

func (p *Program) send(s syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s: %w", p.name, errNotRunning)
	}
	return syscall.Kill(p.PID(), s)
}
