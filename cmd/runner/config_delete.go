package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigDelete(a *app) *cobra.Command {
	var namespace string
	var write writing
	cmd := &cobra.Command{
		Use:               "delete AGENT NAME",
		Short:             "Delete a config map",
		Example:           "  pipeops-runner config delete shop web-settings",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.DeleteConfigMap(ctx, key, write.options()); err != nil {
					return at(t, key.String(), err)
				}
				a.sayDeleted("config map "+key.String(), write.dryRun)
				return nil
			})
		},
	}
	namespaceFlag(cmd, &namespace)
	write.addWriting(cmd)
	return cmd
}
