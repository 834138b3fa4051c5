package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newSecretDelete(a *cmdutil.CLI) *cobra.Command {
	return a.Deletion(&cobra.Command{
		Short:   "Delete a secret",
		Example: "  pipeops-runner secret delete shop web-env",
	}, "secret", func(c *client.Client) cmdutil.Deleter { return c.Secrets() })
}
