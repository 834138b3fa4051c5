package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newConfigList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.ConfigMap]{
		Short: "List the config maps of a namespace", Example: "pipeops-runner configmap list shop -n production",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.ConfigMap] { return c.ConfigMaps() },
		List:  func(items []runnerapi.ConfigMap) any { return runnerapi.ConfigMapList{Items: items} },
		Table: tables.ConfigMaps,
	}.Command(a)
}
