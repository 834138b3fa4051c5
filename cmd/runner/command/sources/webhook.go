package sources

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func newSourceWebhook(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("webhook", "Manage the webhook that takes push events for a source",
		newWebhookSet(a), newWebhookGet(a), newWebhookDelete(a))
}

func newWebhookSet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := ofWebhook(a, &cobra.Command{
		Use: "set [AGENT] NAME", Short: "Make the webhook of a source, or give it a new secret",
		Long: `Make the webhook of a source, or give it a new secret. Enter its URL and secret in the settings of
GitHub, GitLab, Gitea, Forgejo or Bitbucket, or sign with HMAC-SHA256 in X-Hub-Signature-256. A push
then makes the agent look at the repository at once. The secret is printed once.`,
		Example: "  pipeops-runner source webhook set shop web",
	}, func(ctx context.Context, control *announce.SnapshotClient, agent announce.Agent, key runnerapi.Key) error {
		hook, err := control.SetSourceWebhook(ctx, agent.ID, key)
		if err != nil {
			return err
		}
		return printWebhook(a, hook, &out)
	})
	out.Add(cmd)
	return cmd
}

func newWebhookGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := ofWebhook(a, &cobra.Command{
		Use: "get [AGENT] NAME", Short: "Show the webhook of a source and its last event",
		Example: "  pipeops-runner source webhook get shop web",
	}, func(ctx context.Context, control *announce.SnapshotClient, agent announce.Agent, key runnerapi.Key) error {
		hook, err := control.SourceWebhook(ctx, agent.ID, key)
		if err != nil {
			return err
		}
		return printWebhook(a, hook, &out)
	})
	out.Add(cmd)
	return cmd
}

func newWebhookDelete(a *cmdutil.CLI) *cobra.Command {
	return ofWebhook(a, &cobra.Command{
		Use: "delete [AGENT] NAME", Short: "Delete the webhook of a source",
		Long:    "Delete the webhook of a source. The agent looks at the repository by the source's interval.",
		Example: "  pipeops-runner source webhook delete shop web",
	}, func(ctx context.Context, control *announce.SnapshotClient, agent announce.Agent, key runnerapi.Key) error {
		if err := control.DeleteSourceWebhook(ctx, agent.ID, key); err != nil {
			return err
		}
		a.SayDeleted("webhook of source "+key.String(), false)
		return nil
	})
}

// ofWebhook makes a command that asks the control plane alone.
func ofWebhook(a *cmdutil.CLI, cmd *cobra.Command, do func(context.Context, *announce.SnapshotClient, announce.Agent, runnerapi.Key) error) *cobra.Command {
	var namespace string
	cmdutil.NamespaceFlag(cmd, &namespace)
	cmd.Args, cmd.ValidArgsFunction = cli.ExactArgs("AGENT", "NAME"), a.CompleteAgent
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, agent, err := a.Find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer l.Keep.Close()
		return do(cmd.Context(), l.Snapshots(), agent, runnerapi.Key{Namespace: namespace, Name: args[1]})
	}
	return cmd
}

// withWebhook makes the deletion of a source delete its webhook, too.
func withWebhook(a *cmdutil.CLI, cmd *cobra.Command) *cobra.Command {
	ofSource := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ofSource(cmd, args); err != nil || cmd.Flag("dry-run").Changed {
			return err
		}
		l, agent, err := a.Find(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer l.Keep.Close()
		key := runnerapi.Key{Namespace: cmd.Flag("namespace").Value.String(), Name: args[1]}
		if err := l.Snapshots().DeleteSourceWebhook(cmd.Context(), agent.ID, key); !problem.Is(err, problem.NotFound) {
			return err
		}
		return nil
	}
	return cmd
}

func printWebhook(a *cmdutil.CLI, hook announce.SourceWebhook, out *cli.Output) error {
	return out.Write(a.Out, hook, func(w io.Writer) { webhookRows(w, hook) })
}

func webhookRows(w io.Writer, hook announce.SourceWebhook) {
	cli.Row(w, "WEBHOOK", cli.Printable(hook.URL))
	if hook.Secret != "" {
		cli.Row(w, "SECRET", cli.Printable(hook.Secret), "(not shown again)")
	}
	if !hook.CalledAt.IsZero() {
		cli.Row(w, "CALLED", hook.CalledAt.UTC().Format(time.RFC3339), cli.Printable(hook.Event), cli.Printable(hook.Commit))
	}
}
