package sources

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSourceApprove(a *cmdutil.CLI) *cobra.Command {
	var write cmdutil.Writing
	var approval runnerapi.CommitApproval
	cmd := a.Named(&cobra.Command{
		Use: "approve [AGENT] NAME --commit COMMIT", Short: "Allow the promotion of a commit",
		Long: `Allow a commit for a source with --promote-from and --approval. The commit may be approved before
it is due. Another commit needs another approval. The policy must name approve-promotion.

source get shows which commit waits.`,
		Example: "  pipeops-runner source approve shop web --commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		if err := commitGiven(approval); err != nil {
			return err
		}
		if _, err := t.Sources().ApprovePromotion(ctx, key, approval, write.Options()); err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		a.Say("approved: commit %s; see what becomes of it with: pipeops-runner source get %s %s -n %s",
			short(approval.Commit), t.Agent.Name, key.Name, key.Namespace)
		return nil
	})
	write.AddWriting(cmd)
	commitFlag(cmd, &approval)
	return cmd
}

func commitFlag(cmd *cobra.Command, a *runnerapi.CommitApproval) {
	cmd.Flags().StringVar(&a.Commit, "commit", "", "commit that you have looked at, with all 40 digits")
}

func commitGiven(a runnerapi.CommitApproval) error {
	if a.Commit == "" {
		return cli.Usage(errors.New("--commit is needed: the commit that you have looked at, with all 40 digits"))
	}
	return nil
}
