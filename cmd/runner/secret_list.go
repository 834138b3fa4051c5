package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSecretList(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use:               "list AGENT",
		Short:             "List the secrets of a namespace",
		Example:           "  pipeops-runner secret list shop -n production",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				secrets, err := t.ListSecrets(ctx, namespace)
				if err != nil {
					return at(t, namespace, err)
				}
				return out.Write(a.out, runnerapi.SecretList{Items: secrets}, func(w io.Writer) { secretTable(w, secrets...) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}
