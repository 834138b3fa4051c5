package apps

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewDelete returns the command delete.
func NewDelete(a *cmdutil.CLI) *cobra.Command {
	var write cmdutil.Writing
	var wait cmdutil.Waiting
	cmd := a.Named(&cobra.Command{
		Use:               "delete [AGENT] NAME",
		Short:             "Delete an App and exactly what it created",
		Long:              "Delete an App and exactly what it created, and wait until its pods are gone.",
		Example:           "  pipeops-runner delete shop web",
		ValidArgsFunction: a.CompleteApp,
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		if err := t.Apps().Delete(ctx, key, write.Options()); err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return a.Deleted(ctx, t, "App", key, &write, &wait, appLook(key))
	})
	wait.Add(cmd, cmdutil.DefaultWait)
	write.AddWriting(cmd)
	return cmd
}

func appLook(key runnerapi.Key) cmdutil.Look {
	return func(ctx context.Context, t *cmdutil.Target) (cmdutil.GoingState, error) {
		app, err := t.Apps().Get(ctx, key)
		return cmdutil.GoingState{
			Uid: app.UID, Going: app.Status.Phase == runnerapi.PhaseDeleting, Settled: app.Settled(), Waits: app.Status.WaitingFor,
		}, err
	}
}
