// Command pipeops-controlplane is the operator's side of PipeOps: it serves
// agents and Runners, and manages tokens, Runners and agents. Everything it does
// is in internal/controlplane; here are flags and wiring.
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
	// releaseKeys are minisign's public keys of those who sign releases, with commas between.
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
