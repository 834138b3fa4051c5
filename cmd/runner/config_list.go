package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigList(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use:               "list AGENT",
		Short:             "List the config maps of a namespace",
		Example:           "  pipeops-runner config list shop -n production",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				maps, err := t.ListConfigMaps(ctx, namespace)
				if err != nil {
					return at(t, namespace, err)
				}
				return out.Write(a.out, runnerapi.ConfigMapList{Items: maps}, func(w io.Writer) { configTable(w, maps...) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}
