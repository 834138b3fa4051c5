package contexts

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// NewContext returns the command context.
func NewContext(a *cmdutil.CLI) *cobra.Command {
	shared := commands(a)
	return cli.Group("context", "Manage contexts: credentials with a default agent and namespace",
		shared.List(), shared.Use(), shared.Get(), newSet(a), shared.Delete())
}

// commands are those that the control plane's program has, too.
func commands(a *cmdutil.CLI) contextfile.Commands {
	return contextfile.Commands{
		Kind: contextfile.Runner, Named: a.ContextNamed, Say: a.Say,
		Defaults: true,
		Holder: func(path string) (name, controlPlane string, err error) {
			c, err := credentials.Load(path)
			return c.Runner, c.ControlPlane, err
		},
		Missing: func(err error) error { return &cmdutil.ExitError{Err: err, Code: cmdutil.ExitNotFound} },
	}
}
