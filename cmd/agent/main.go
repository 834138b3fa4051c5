// Command pipeops-agent turns the cluster it runs in into a deployment target.
package main

import (
	"context"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "none"
	// releaseKeys are the maintainers' minisign public keys, separated by commas. They sign the
	// versions to which this one may update (internal/release.ParseKeys).
	releaseKeys = ""
)

func main() {
	render.Child() // the agent starts itself for that
	ctx, stop := signals(context.Background())
	code := execute(ctx, newRoot(), os.Stderr)
	stop()
	os.Exit(code)
}
