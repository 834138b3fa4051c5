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
		Short: "Pause an App until it is resumed",
		Long: `Pause an App until it is resumed. The agent leaves everything that belongs to the App as it is. It
accepts deploys and scales, but rolls nothing out, and does not undo changes by other clients.`,
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
		Short:             "Resume an App and roll out the changes since its pause",
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
