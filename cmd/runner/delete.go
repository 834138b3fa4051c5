package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newDelete(a *app) *cobra.Command {
	var namespace string
	var write writing
	cmd := &cobra.Command{
		Use:               "delete AGENT NAME",
		Short:             "Remove an App and exactly what it made",
		Example:           "  pipeops-runner delete shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.Delete(ctx, key, write.options()); err != nil {
					return at(t, key.String(), err)
				}
				a.sayDeleted("App "+key.String(), write.dryRun)
				return nil
			})
		},
	}
	namespaceFlag(cmd, &namespace)
	write.addWriting(cmd)
	return cmd
}

func (a *app) sayDeleted(what string, dryRun bool) {
	if dryRun {
		a.say("dry run: %s would be deleted; nothing was changed", what)
		return
	}
	a.say("deleted: %s", what)
}
