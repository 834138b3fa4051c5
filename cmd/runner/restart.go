package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newRestart(a *app) *cobra.Command {
	w := &rollout{app: a}
	cmd := &cobra.Command{
		Use:               "restart AGENT NAME",
		Short:             "Restart an App by replacing its pods, a few at a time",
		Example:           "  pipeops-runner restart shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Restart(ctx, key, opts)
			})
		},
	}
	w.add(cmd)
	return cmd
}
