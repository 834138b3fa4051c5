package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newNamespaceList(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:               "list [AGENT]",
		Short:             "List the namespaces that the agent manages",
		Example:           "  pipeops-runner namespace list shop",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := t.Namespaces().List(ctx)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, runnerapi.NamespaceList{Items: list}, func(w io.Writer) { tables.Namespaces(w, list...) })
			})
		},
	}
	out.AddList(cmd)
	out.AddSelector(cmd)
	return cmd
}
