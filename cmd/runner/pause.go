package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newPause(a *app) *cobra.Command {
	w := &rollout{app: a}
	cmd := &cobra.Command{
		Use:   "pause AGENT NAME",
		Short: "Leave an App as it is until it is resumed",
		Long: `Leave everything that was made from an App as it is until it is resumed: deploys and
scales are taken, but nothing is rolled out, and what others change is not put back.`,
		Example:           "  pipeops-runner pause shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Pause(ctx, key, opts)
			})
		},
	}
	w.add(cmd)
	return cmd
}

func newResume(a *app) *cobra.Command {
	w := &rollout{app: a}
	cmd := &cobra.Command{
		Use:               "resume AGENT NAME",
		Short:             "Roll out what was changed while an App was paused",
		Example:           "  pipeops-runner resume shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Resume(ctx, key, opts)
			})
		},
	}
	w.add(cmd)
	return cmd
}
