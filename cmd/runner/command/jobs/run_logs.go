package jobs

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/apps"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newRunLogs[T any](a *cmdutil.CLI, k runKind[T], kind, short, name string) *cobra.Command {
	c := &apps.LogsCommand{CLI: a}
	cmd := &cobra.Command{
		Use: "logs [AGENT] NAME", Short: short,
		Long:              short + ". Lines are available as long as the pods are.",
		Example:           fmt.Sprintf("  pipeops-runner %[1]s logs shop %[2]s --tail 100\n  pipeops-runner %[1]s logs shop %[2]s -f --prefix", kind, name),
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: c.Namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				if err := k.calls(t.Client).Logs(ctx, key, c.Opts, c.Print); err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				return nil
			})
		},
	}
	c.Flags(cmd, "print new lines until the "+kind+" ends")
	return cmd
}

func newRunDelete[T any](a *cmdutil.CLI, k runKind[T], kind, short string, see func(runnerapi.Key) cmdutil.Look, name string) *cobra.Command {
	var write cmdutil.Writing
	var wait cmdutil.Waiting
	cmd := a.Named(&cobra.Command{
		Use: "delete [AGENT] NAME", Short: short,
		Long:    short + ". The command waits until they are gone.",
		Example: fmt.Sprintf("  pipeops-runner %s delete shop %s", kind, name),
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		if err := k.calls(t.Client).Delete(ctx, key, write.Options()); err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return a.Deleted(ctx, t, kind, key, &write, &wait, see(key))
	})
	wait.Add(cmd, cmdutil.DefaultWait)
	write.AddWriting(cmd)
	return cmd
}
