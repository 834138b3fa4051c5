package apps

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewOperation returns the command operation.
func NewOperation(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "operation [AGENT] ID",
		Short: "Show the outcome of an earlier command",
		Long: `Show the outcome of an earlier command by its operation ID. The response to that command contains
the ID in the header Operation-Id, and an App contains it in the field operation.

The exit code is the one that the earlier command would have had with --wait.`,
		Example:           `  pipeops-runner operation shop "$(pipeops-runner restart shop web --no-wait -o json | jq -r .operation)"`,
		Args:              cli.ExactArgs("AGENT", "ID"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				op, err := t.Operations().Get(ctx, args[1])
				if err != nil {
					return cmdutil.At(t, args[1], err)
				}
				if err := out.Write(a.Out, op, func(w io.Writer) { operationTable(w, op) }); err != nil {
					return err
				}
				switch op.State {
				case runnerapi.OperationFailed:
					return &cmdutil.ExitError{Err: errors.New("the operation failed"), Code: cmdutil.ExitAppFailed, Told: true}
				case runnerapi.OperationSuperseded:
					return &cmdutil.ExitError{Err: errors.New("the operation was superseded"), Code: cmdutil.ExitSuperseded, Told: true}
				}
				return nil
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func operationTable(w io.Writer, op runnerapi.Operation) {
	cli.Row(w, "Operation:", op.ID)
	cli.Row(w, "Command:", op.Command)
	cli.Row(w, "State:", op.State)
	cli.Row(w, "Of:", runnerapi.Key{Namespace: op.Namespace, Name: op.Name})
	cli.Row(w, "By:", op.Runner)
	cli.Row(w, "Started:", cli.Ago(op.StartedAt))
	if op.Message != "" {
		cli.Row(w, "Message:", op.Message)
	}
	if d := op.Diagnosis; d != nil {
		cli.Row(w, "Cause:", d.Cause)
		cli.Row(w, "Why:", d.Message)
		cli.Row(w, "Fix:", d.Fix)
	}
}
