package apps

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewPause returns the command pause.
func NewPause(a *cmdutil.CLI) *cobra.Command {
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:   "pause [AGENT] NAME",
		Short: "Pause an App until it is resumed",
		Long: `Pause an App until it is resumed. The agent leaves everything that belongs to the App as it is. It
accepts deploys and scales, but rolls nothing out, and does not undo changes by other clients.`,
		Example:           "  pipeops-runner pause shop web",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Apps().Pause(ctx, key, opts)
			})
		},
	}
	w.Add(cmd)
	return cmd
}

// NewResume returns the command resume.
func NewResume(a *cmdutil.CLI) *cobra.Command {
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:               "resume [AGENT] NAME",
		Short:             "Resume an App and roll out the changes since its pause",
		Example:           "  pipeops-runner resume shop web",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Apps().Resume(ctx, key, opts)
			})
		},
	}
	w.Add(cmd)
	return cmd
}
