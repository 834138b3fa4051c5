package main

import (
	"bufio"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// namespaceDelete removes a namespace, when it is really meant.
type namespaceDelete struct {
	*app
	writing
	yes bool
}

func newNamespaceDelete(a *app) *cobra.Command {
	c := &namespaceDelete{app: a}
	cmd := &cobra.Command{
		Use:   "delete AGENT NAMESPACE",
		Short: "Delete a namespace with everything in it",
		Long: `Delete a namespace with everything in it: Apps, secrets, volumes. You cannot undo this.

The command asks you to type the namespace's name. In a script, give --yes.`,
		Example:           "  pipeops-runner namespace delete shop staging --yes",
		Args:              exactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.confirm(args[1]); err != nil {
				return err
			}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.DeleteNamespace(ctx, args[1], c.options()); err != nil {
					return at(t, args[1], err)
				}
				a.sayDeleted("namespace "+args[1], c.dryRun)
				return nil
			})
		},
	}
	c.addWriting(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func (c *namespaceDelete) confirm(name string) error {
	switch {
	case c.yes || c.dryRun:
		return nil
	case !c.terminal:
		return usageError{errors.New("this removes everything in the namespace: add --yes")}
	}
	cli.Ask(c.err, "This removes namespace %s with everything in it. Type its name to go on: ", name)
	answer, _ := bufio.NewReader(c.in).ReadString('\n')
	if strings.TrimSpace(answer) != name {
		return errors.New("nothing was deleted: the answer was not the namespace's name")
	}
	return nil
}
