// Package command is the command line of pipeops-runner, a Runner for the shell: it finds agents
// through the control plane and calls their Runner API. Package runnerapi implements the calls; the
// packages below have flags, waiting and output, one for each noun.
package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
)

// Build is what the linker stamped into the program.
type Build struct{ Version, Commit string }

// What Main was given; tests have these.
var (
	version = "dev"
	commit  = "unknown"
)

// Main carries out the process's command line and returns its exit code.
func Main(b Build) int {
	version, commit = b.Version, b.Commit
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the command in order, the second at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], cmdutil.Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), Screen: term.IsTerminal(int(os.Stdout.Fd())),
	})
}
