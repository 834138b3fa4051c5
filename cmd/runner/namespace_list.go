package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newNamespaceList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:               "list AGENT",
		Short:             "List the namespaces that the agent manages",
		Example:           "  pipeops-runner namespace list shop",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				list, err := t.ListNamespaces(ctx)
				if err != nil {
					return at(t, "", err)
				}
				return out.Write(a.out, runnerapi.NamespaceList{Items: list}, func(w io.Writer) { namespaceTable(w, list...) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}
