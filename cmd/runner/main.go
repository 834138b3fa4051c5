// Command pipeops-runner is a Runner for the shell: it finds agents through the control plane and
// calls their Runner API. Package runnerapi implements the calls; this package has flags, waiting
// and output.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// Set when a release is built: -ldflags "-X main.version=… -X main.commit=…".
var (
	version = "dev"
	commit  = "unknown"
)

func main() { os.Exit(Main()) }

// Main is like main for tests too.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the command in order, the second at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		terminal: term.IsTerminal(int(os.Stderr.Fd())), screen: term.IsTerminal(int(os.Stdout.Fd())),
	})
}
