package sources

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSourceRollback(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var write cmdutil.Writing
	var to runnerapi.SourceRollback
	w := cmdutil.Waiting{}
	cmd := a.Named(&cobra.Command{
		Use: "rollback [AGENT] NAME", Short: "Go back to an earlier commit and stay there until a new one",
		Long: `Go back to an earlier commit. The source stays there until someone pushes a commit newer than the
newest one of now. To follow the repository again earlier, use source sync.

source get lists the commits. With --dry-run, the agent fetches the commit and tries everything, but
changes nothing.`,
		Example: `  pipeops-runner source rollback shop web
  pipeops-runner source rollback shop web --to 0a1b2c3d4e5f --wait=2m`,
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		source, err := t.Sources().Rollback(ctx, key, to, write.Options())
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if write.DryRun {
			return printSource(a, source, &out)
		}
		return sourceOutcome(ctx, a, t, source, &w, &out)
	})
	out.Add(cmd)
	write.AddWriting(cmd)
	w.Add(cmd, 0)
	cmd.Flags().StringVar(&to.Commit, "to", "", "commit that was applied before, by 7 digits or more (default: the one before the current one)")
	return cmd
}

// short returns the first digits of a commit.
func short(commit string) string { return fmt.Sprintf("%.12s", commit) }

// heldAt says where a source is held, and until when once that is known.
func heldAt(h runnerapi.SourceHold) string {
	if h.After == "" {
		return "at " + short(h.Commit)
	}
	return "at " + short(h.Commit) + " until a commit after " + short(h.After)
}

func revisionOf(c runnerapi.SourceCommit) string {
	if c.Revision == 0 {
		return ""
	}
	return fmt.Sprintf("revision %d", c.Revision)
}
