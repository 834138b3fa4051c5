package apps

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewRestart returns the command restart.
func NewRestart(a *cmdutil.CLI) *cobra.Command {
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:               "restart [AGENT] NAME",
		Short:             "Restart an App by replacing its pods, a few at a time",
		Example:           "  pipeops-runner restart shop web",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Apps().Restart(ctx, key, opts)
			})
		},
	}
	w.Add(cmd)
	return cmd
}
