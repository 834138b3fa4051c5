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
)

// stopTimeout is how long a process may take to stop on SIGTERM.
const stopTimeout = 3 * time.Minute

// process is a program that runs beside the tests, with its log in a file. It can be stopped,
// killed and started again with the same arguments.
type process struct {
	name string
	path string
	args []string
	env  []string
	log  string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func newProcess(dir, name, path string, args, env []string) *process {
	return &process{name: name, path: path, args: args, env: env, log: filepath.Join(dir, name+".log")}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.path, p.args...) //nolint:noctx // its life is ended by stop and kill
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	// It must not outlive the tests, however they end. Ctrl-C is only for the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
		_ = log.Close()
	}()
	p.cmd, p.done = cmd, done
	return nil
}

// signal sends s and waits for the process to end.
func (p *process) signal(ctx context.Context, s os.Signal) error {
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

// kill ends the process as a crash would.
func (p *process) kill() error { return p.signal(context.Background(), syscall.SIGKILL) }

// stop ends the process in order, or kills it if it does not stop.
func (p *process) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := p.signal(ctx, syscall.SIGTERM); err != nil {
		return errors.Join(err, p.kill())
	}
	return nil
}

// running reports whether the process lives.
func (p *process) running() bool {
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

// lastLines returns the end of the log, for messages.
func (p *process) lastLines(n int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// pid returns the process that was started last; 0 if none was.
func (p *process) pid() int {
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
