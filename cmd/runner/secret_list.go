package main

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newSecretList(a *app) *cobra.Command {
	return listing[runnerapi.Secret]{
		short: "List the secrets of a namespace", example: "pipeops-runner secret list shop -n production",
		items: (*client.Client).ListSecrets,
		list:  func(items []runnerapi.Secret) any { return runnerapi.SecretList{Items: items} },
		table: secretTable,
	}.command(a)
}
