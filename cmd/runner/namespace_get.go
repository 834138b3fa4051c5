package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newNamespaceGet(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:               "get AGENT NAMESPACE",
		Short:             "Show a namespace that the agent manages",
		Example:           "  pipeops-runner namespace get shop staging",
		Args:              exactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				ns, err := t.GetNamespace(ctx, args[1])
				if err != nil {
					return at(t, args[1], err)
				}
				return out.Write(a.out, ns, func(w io.Writer) { namespaceDetails(w, ns) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}
