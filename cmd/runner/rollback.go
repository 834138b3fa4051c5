package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newRollback(a *app) *cobra.Command {
	var to runnerapi.RollbackTo
	w := &rollout{app: a}
	cmd := &cobra.Command{
		Use:   "rollback AGENT NAME [--to REVISION]",
		Short: "Roll back an App to an earlier revision",
		Long: `Roll back an App to an earlier revision: the previous one, or any one that
` + "`pipeops-runner revisions`" + ` lists. It becomes a new revision. The number of pods does not change.`,
		Example:           "  pipeops-runner rollback shop web\n  pipeops-runner rollback shop web --to 3",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Rollback(ctx, key, to, opts)
			})
		},
	}
	w.add(cmd)
	cmd.Flags().Int64Var(&to.Revision, "to", 0, "revision to roll back to (default: the previous one)")
	return cmd
}
