package harness

import (
	"errors"
	"fmt"
	"syscall"
)

// errNotRunning says that there is no process to send a signal to.
var errNotRunning = errors.New("it does not run")

// Program is one of the product's programs beside the system's own: another
// control plane, an agent that is no pod. It can be killed, held, and started
// again with the same arguments.
type Program struct{ *process }

// NewProgram names a program and what it is called with; nothing runs yet. Its log
// is in the system's directory.
func (s *System) NewProgram(name, path string, args, env []string) *Program {
	return &Program{newProcess(s.Dir, name, path, args, env)}
}

// Start starts it, and does not wait until it is ready.
func (p *Program) Start() error { return p.start() }

// Kill ends it as a crash would, also while it is held.
func (p *Program) Kill() error { return p.kill() }

// Close stops it in order.
func (p *Program) Close() error { return p.stop() }

// Running says whether it lives.
func (p *Program) Running() bool { return p.running() }

// LastLines are the end of its log.
func (p *Program) LastLines(n int) string { return p.lastLines(n) }

// PID is the process, 0 when none was started.
func (p *Program) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Hold stops its time: it answers nobody, and its connections stay.
func (p *Program) Hold() error { return p.send(syscall.SIGSTOP) }

// Resume lets it go on after Hold.
func (p *Program) Resume() error { return p.send(syscall.SIGCONT) }

func (p *Program) send(s syscall.Signal) error {
	if !p.Running() {
		return fmt.Errorf("%s: %w", p.name, errNotRunning)
	}
	return syscall.Kill(p.PID(), s)
}
