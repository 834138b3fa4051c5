// Package cmdutil is what the commands share: streams, credentials, agents, waiting and exit codes.
package cmdutil

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// CLI is what all subcommands share.
type CLI struct {
	Streams
	Defaults
	Patience time.Duration
	Version  string // of the program
	Verbose  int    // how much of each HTTP call to print

	exchanged *credentials.Credentials // for the job's ID token; nil before

	// state receives the final state of an App, for a table of many agents; nil otherwise.
	state func(string)
}

// State tells how an App is at the end.
func (a *CLI) State(state string) {
	if a.state != nil {
		a.state(state)
	}
}
