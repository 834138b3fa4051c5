package cluster

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// NewNamespace returns the command namespace.
func NewNamespace(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("namespace", "Manage the namespaces of an agent",
		newNamespaceCreate(a), newNamespaceList(a), newNamespaceGet(a), newNamespaceDelete(a))
}
