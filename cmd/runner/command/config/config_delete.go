package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newConfigDelete(a *cmdutil.CLI) *cobra.Command {
	return a.Deletion(&cobra.Command{
		Short:   "Delete a config map",
		Example: "  pipeops-runner configmap delete shop web-settings",
	}, "config map", func(c *client.Client) cmdutil.Deleter { return c.ConfigMaps() })
}
