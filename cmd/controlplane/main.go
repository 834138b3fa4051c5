// Command pipeops-controlplane is the operator's side of PipeOps: it serves agents and Runners, and
// manages tokens, Runners and agents. The implementation is in internal/controlplane; this package
// has flags and wiring.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Set when a release is built: -ldflags "-X main.version=… -X main.commit=…".
var (
	version = "dev"
	commit  = "unknown"
	// releaseKeys are the minisign public keys of the release signers, separated by commas.
	releaseKeys = ""
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal stops in order, the second at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr})
}
