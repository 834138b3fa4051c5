// Command pipeops-runner is a Runner for the shell.
package main

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command"
)

//go:generate go test ./command -run TestReference_UpToDate -update

// Set when a release is built: -ldflags "-X main.version=… -X main.commit=…".
var (
	version = "dev"
	commit  = "unknown"
)

func main() {
	os.Exit(command.Main(command.Build{Version: version, Commit: commit}))
}
