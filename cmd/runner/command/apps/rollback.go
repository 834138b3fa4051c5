package apps

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewRollback returns the command rollback.
func NewRollback(a *cmdutil.CLI) *cobra.Command {
	var to runnerapi.RollbackTo
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:   "rollback [AGENT] NAME [--to REVISION]",
		Short: "Roll back an App to an earlier revision",
		Long: `Roll back an App to an earlier revision: the newest one before the current one that was
healthy, or any one that ` + "`pipeops-runner revisions`" + ` lists. If none was healthy, it is the
previous one. It becomes a new revision. The number of pods does not change.

The command warns before it goes back to a revision that is not known to have been healthy, or that
changes nothing.`,
		Example:           "  pipeops-runner rollback shop web\n  pipeops-runner rollback shop web --to 3",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				caution(ctx, a, t, key, to.Revision)
				return t.Apps().Rollback(ctx, key, to, opts)
			})
		},
	}
	w.Add(cmd)
	cmd.Flags().Int64Var(&to.Revision, "to", 0, "revision to roll back to (default: the newest healthy one before the current one)")
	return cli.Extra(cmd, "--to")
}

// caution says what to know of the revision to which an App is about to go back. Without the right
// to read revisions there is nothing to say.
func caution(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, key runnerapi.Key, to int64) {
	list, err := t.Apps().Revisions(ctx, key)
	if err != nil {
		return
	}
	if target, found := runnerapi.RollbackTarget(list, to); found && target.Caution() != "" {
		a.Say("warning: %s", target.Caution())
	}
}
