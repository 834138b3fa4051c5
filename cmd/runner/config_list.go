package main

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newConfigList(a *app) *cobra.Command {
	return listing[runnerapi.ConfigMap]{
		short: "List the config maps of a namespace", example: "pipeops-runner config list shop -n production",
		items: (*client.Client).ListConfigMaps,
		list:  func(items []runnerapi.ConfigMap) any { return runnerapi.ConfigMapList{Items: items} },
		table: configTable,
	}.command(a)
}
