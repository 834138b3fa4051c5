// Command pipeops-agent turns the cluster it runs in into a deployment target.
package main

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/cmd/agent/command"
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
	os.Exit(command.Main(command.Build{Version: version, Commit: commit, ReleaseKeys: releaseKeys}))
}
