package harness

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Stream is a running command that keeps printing, and what it has printed.
type Stream struct {
	what string
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed at the next line
}

// WatchAgents starts `pipeops-runner agents --watch` as the Runner of that name.
func (s *System) WatchAgents(runner string) (*Stream, error) {
	return s.Stream(runner, "agents", "--watch")
}

// Stream starts pipeops-runner as the Runner of that name.
func (s *System) Stream(runner string, args ...string) (*Stream, error) {
	cmd := exec.Command(s.Binaries.Runner, args...) //nolint:noctx // Close ends it
	cmd.Env = append(os.Environ(), "PIPEOPS_RUNNER_CREDENTIALS="+s.RunnerCredentials(runner))
	return StartStream(cmd)
}

// StartStream starts a command that keeps printing.
func StartStream(cmd *exec.Cmd) (*Stream, error) {
	// It must not outlive the tests, however they end. Ctrl-C is only for the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	w := &Stream{what: filepath.Base(cmd.Path) + " " + strings.Join(cmd.Args[1:], " "), cmd: cmd, done: make(chan struct{}), more: make(chan struct{})}
	go func() {
		defer close(w.done)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			w.add(scan.Text())
		}
		_ = cmd.Wait()
	}()
	return w, nil
}

func (w *Stream) add(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
	close(w.more)
	w.more = make(chan struct{})
}

// Lines returns all lines so far, and a channel that is closed at the next one.
func (w *Stream) Lines() ([]string, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...), w.more
}

// Await returns the first line that fits, as soon as there is one.
func (w *Stream) Await(ctx context.Context, fits func(string) bool) (string, error) {
	for {
		lines, more := w.Lines()
		for _, line := range lines {
			if fits(line) {
				return strings.TrimSpace(line), nil
			}
		}
		select {
		case <-more:
		case <-w.done:
			return "", fmt.Errorf("%s ended; it had printed:\n%s", w.what, strings.Join(lines, "\n"))
		case <-ctx.Done():
			return "", fmt.Errorf("%s did not print it: %w; so far:\n%s", w.what, ctx.Err(), strings.Join(lines, "\n"))
		}
	}
}

// Close ends the command.
func (w *Stream) Close() error {
	_ = w.cmd.Process.Signal(os.Interrupt)
	<-w.done
	return nil
}
