package config

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigDelete(a *cmdutil.CLI) *cobra.Command {
	var namespace string
	var write cmdutil.Writing
	cmd := &cobra.Command{
		Use:               "delete [AGENT] NAME",
		Short:             "Delete a config map",
		Example:           "  pipeops-runner configmap delete shop web-settings",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				if err := t.ConfigMaps().Delete(ctx, key, write.Options()); err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				a.SayDeleted("config map "+key.String(), write.DryRun)
				return nil
			})
		},
	}
	cmdutil.NamespaceFlag(cmd, &namespace)
	write.AddWriting(cmd)
	return cmd
}
