package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

const stopTimeout = time.Minute

// process is the running server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// launch starts the server in a goroutine that keeps its thread until the server has ended: the
// kernel's signal for the parent's death depends on the thread.
func launch(cmd *exec.Cmd, logFile string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT
	cmd.SysProcAttr.Setpgid = true // an interrupt from the terminal is for us
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	return p, <-started
}

// end makes the server cut its connections and write its data.
func (p *process) end() error { return p.signal(syscall.SIGINT) }

// crash makes all its processes abort.
func (p *process) crash() error { return p.signal(syscall.SIGQUIT) }

func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		return fmt.Errorf("PostgreSQL did not end within %s and was killed", stopTimeout)
	}
}
