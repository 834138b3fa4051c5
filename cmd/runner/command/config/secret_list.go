package config

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

func newSecretList(a *cmdutil.CLI) *cobra.Command {
	return cmdutil.Listing[runnerapi.Secret]{
		Short: "List the secrets of a namespace", Example: "pipeops-runner secret list shop -n production",
		Of:    func(c *client.Client) cmdutil.Lister[runnerapi.Secret] { return c.Secrets() },
		List:  func(items []runnerapi.Secret) any { return runnerapi.SecretList{Items: items} },
		Table: tables.Secrets,
	}.Command(a)
}
