// Package command is the agent's command line.
package command

import (
	"context"
	"os"
	"strings"

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
	root := newRoot()
	root.SetArgs(implied(os.Args[1:]))
	return execute(ctx, root, os.Stderr)
}

// implied returns the arguments with the command run, where they begin with a configuration file.
func implied(args []string) []string {
	if len(args) > 0 && (args[0] == "--config" || strings.HasPrefix(args[0], "--config=")) {
		return append([]string{"run"}, args...)
	}
	return args
}
