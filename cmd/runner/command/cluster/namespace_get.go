package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newNamespaceGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:               "get [AGENT] NAMESPACE",
		Short:             "Show a namespace that the agent manages",
		Example:           "  pipeops-runner namespace get shop staging",
		Args:              cli.ExactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				ns, err := t.Namespaces().Get(ctx, args[1])
				if err != nil {
					return cmdutil.At(t, args[1], err)
				}
				return out.Write(a.Out, ns, func(w io.Writer) { namespaceDetails(w, ns) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}
