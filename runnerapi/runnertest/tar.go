package runnertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Machine gives the fake's containers two programs of this machine, tar and test, with the
// machine's file system.
func (b *FakeBackend) Machine() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.machine = true
}

func (b *FakeBackend) program(name string) (program, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.machine && (name == "tar" || name == "test") {
		return func(ctx context.Context, args []string, s runnerapi.ExecStreams) (int, error) {
			return onMachine(ctx, name, args, s)
		}, true
	}
	run, ok := commands[name]
	return run, ok
}

func onMachine(ctx context.Context, name string, args []string, s runnerapi.ExecStreams) (int, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Stdin, s.Stdout, s.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	// Unread input is not a failure of the program.
	if cmd.ProcessState != nil && err != nil && strings.Contains(err.Error(), "closed pipe") {
		return cmd.ProcessState.ExitCode(), nil
	}
	return 0, err
}
