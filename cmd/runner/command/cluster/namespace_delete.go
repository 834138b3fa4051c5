package cluster

import (
	"bufio"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// namespaceDelete removes a namespace, when it is really meant.
type namespaceDelete struct {
	*cmdutil.CLI
	cmdutil.Writing
	yes bool
}

func newNamespaceDelete(a *cmdutil.CLI) *cobra.Command {
	c := &namespaceDelete{CLI: a}
	cmd := &cobra.Command{
		Use:   "delete [AGENT] NAMESPACE",
		Short: "Delete a namespace with everything in it",
		Long: `Delete a namespace with everything in it: Apps, secrets, volumes. You cannot undo this.

The command asks you to type the namespace's name. In a script, give --yes.`,
		Example:           "  pipeops-runner namespace delete shop staging --yes",
		Args:              cli.ExactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(args[1]); err != nil {
				return err
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				if err := t.Namespaces().Delete(ctx, args[1], c.Options()); err != nil {
					return cmdutil.At(t, args[1], err)
				}
				a.SayDeleted("namespace "+args[1], c.DryRun)
				return nil
			})
		},
	}
	c.AddWriting(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (c *namespaceDelete) confirm(name string) error {
	switch {
	case c.yes || c.DryRun:
		return nil
	case !c.Terminal:
		return cli.Usage(errors.New("this removes everything in the namespace: add --yes"))
	}
	cli.Ask(c.Err, "This removes namespace %s with everything in it. Type its name to go on: ", name)
	answer, _ := bufio.NewReader(c.In).ReadString('\n')
	if strings.TrimSpace(answer) != name {
		return errors.New("nothing was deleted: the answer was not the namespace's name")
	}
	return nil
}
