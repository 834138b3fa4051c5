// Package config has the commands about Secrets and ConfigMaps.
package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// NewConfig returns the command config.
func NewConfig(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("configmap", "Manage config maps",
		newConfigSet(a), newConfigGet(a), newConfigList(a), newConfigDelete(a))
}
