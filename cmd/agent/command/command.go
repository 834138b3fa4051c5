// Package command is the agent's command line.
package command

import (
	"context"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

// Build is what the linker stamped into the program.
type Build struct{ Version, Commit, ReleaseKeys string }

// What Main was given; tests have these.
var (
	version     = "dev"
	commit      = "none"
	releaseKeys = ""
)

// Main carries out the process's command line and returns its exit code.
func Main(b Build) int {
	render.Child() // the agent starts itself for that
	version, commit, releaseKeys = b.Version, b.Commit, b.ReleaseKeys
	ctx, stop := signals(context.Background())
	defer stop()
	return execute(ctx, newRoot(), os.Stderr)
}
