package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// NewSecret returns the command secret.
func NewSecret(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("secret", "Manage secrets, whose values cannot be read back",
		newSecretSet(a), newSecretGet(a), newSecretList(a), newSecretDelete(a))
}
