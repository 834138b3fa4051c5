package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/launch"
)

// stopTimeout is how long a program may take to stop on SIGTERM.
const stopTimeout = 3 * time.Minute

// errNotRunning means that there is no process to send a signal to.
var errNotRunning = errors.New("it does not run")

// Program is one of the product's programs that runs beside the tests, with its log in a file. It
// can be stopped, killed, held, and started again with the same arguments.
type Program struct {
	name string
	path string
	args []string
	env  []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done <-chan struct{}
}

// NewProgram returns a program with its arguments; nothing runs yet. Its log is in the system's
// directory.
func (s *System) NewProgram(name, path string, args, env []string) *Program {
	return &Program{name: name, path: path, args: args, env: env, log: filepath.Join(s.Dir, name+".log")}
}

// Start starts the program, and does not wait until it is ready.
func (p *Program) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // its life is ended by Close and Kill
	cmd.Env = append(os.Environ(), p.env...)
	done, err := launch.Start(cmd, p.log, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.cmd, p.done = cmd, done
	return nil
}

// signal sends s and waits for the process to end.
func (p *Program) signal(ctx context.Context, s os.Signal) error {
	p.mu.Lock()
	cmd, done := p.cmd, p.done
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end after %s: %w", p.name, s, ctx.Err())
	}
}

// Kill ends the program as a crash would, also while it is held.
func (p *Program) Kill() error { return p.signal(context.Background(), syscall.SIGKILL) }

// Close stops the program in order, or kills it if it does not stop.
func (p *Program) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := p.signal(ctx, syscall.SIGTERM); err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Running reports whether the program lives.
func (p *Program) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// LastLines returns the end of the log.
func (p *Program) LastLines(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// PID returns the process that was started last; 0 if none was.
func (p *Program) PID() int {
	if p == nil {
		return 0
	}
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
