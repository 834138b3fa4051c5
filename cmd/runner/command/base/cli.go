// Package base is what the commands share: streams, credentials, agents, waiting and exit codes.
package base

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

const (
	// EnvCredentials is the variable that names the file with the credentials.
	EnvCredentials   = "PIPEOPS_RUNNER_CREDENTIALS" //nolint:gosec // a variable's name
	defaultNamespace = "production"
)

// Streams are where a command reads and writes. Results go to Out; progress, hints and errors,
// which scripts should not see, to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Err is a terminal
	Screen   bool // Out is one
}

// CLI is what all subcommands share.
type CLI struct {
	Streams
	Credentials string
	Context     string // of the flag --context
	Patience    time.Duration
	Version     string // of the program
	Verbose     int    // how much of each HTTP call to print

	// state receives the final state of an App, for a table of many agents; nil otherwise.
	state func(string)
}

// CredentialsFile returns where the credentials are. A flag wins over a variable, and a variable
// over the current context.
func (a *CLI) CredentialsFile() (string, error) {
	path := os.Getenv(EnvCredentials)
	switch {
	case a.Credentials != "":
		return a.Credentials, nil
	case path != "" && a.Context == "":
		return path, nil
	}
	c, err := a.context()
	if err != nil {
		return "", err
	}
	if c.Credentials == "" {
		return "", &ExitError{
			Err: errors.New("no credentials were given"), Code: ExitUsage,
			Fix: "log in with `pipeops-runner login FILE`, or use --credentials FILE or " + EnvCredentials +
				"; the operator makes the file with `pipeops-controlplane runner create NAME -o FILE`",
		}
	}
	return c.Credentials, nil
}

// State tells how an App is at the end.
func (a *CLI) State(state string) {
	if a.state != nil {
		a.state(state)
	}
}

// Say prints hints for people, which scripts that read the output must not see.
func (a *CLI) Say(format string, args ...any) {
	cli.Say(a.Err, format, args...)
}
