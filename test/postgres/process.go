package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/launch"
)

const stopTimeout = time.Minute

// process is the running server.
type process struct {
	cmd  *exec.Cmd
	done <-chan struct{}
}

// start starts the server.
func start(cmd *exec.Cmd, logFile string) (*process, error) {
	done, err := launch.Start(cmd, logFile, syscall.SIGQUIT)
	return &process{cmd: cmd, done: done}, err
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
