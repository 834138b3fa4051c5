// Package command is the command line of the control plane: an operator's subcommands, one file for
// each, and those of package serve.
package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Build is what the linker stamped into the program.
type Build struct{ Version, Commit, ReleaseKeys string }

// What Main was given; tests have these.
var (
	version     = "dev"
	commit      = "unknown"
	releaseKeys = ""
)

// Main carries out the process's command line and returns its exit code.
func Main(b Build) int {
	version, commit, releaseKeys = b.Version, b.Commit, b.ReleaseKeys
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal stops in order, the second at once.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], streams{out: os.Stdout, err: os.Stderr})
}
