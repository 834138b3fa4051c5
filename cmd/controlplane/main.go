// Command pipeops-controlplane is the operator's side of PipeOps: it serves agents and Runners, and
// manages tokens, Runners and agents.
package main

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/command"
)

// Set by the linker.
var (
	version = "dev"
	commit  = "unknown"
	// releaseKeys are the minisign public keys of the release signers, separated by commas.
	releaseKeys = ""
)

func main() {
	os.Exit(command.Main(command.Build{Version: version, Commit: commit, ReleaseKeys: releaseKeys}))
}
