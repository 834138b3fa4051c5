package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSecretGet(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use:               "get AGENT NAME",
		Short:             "Show a secret's keys, their sizes and a content digest",
		Example:           "  pipeops-runner secret get shop web-env",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				secret, err := t.GetSecret(ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				return out.Write(a.out, secret, func(w io.Writer) {
					cli.Row(w, "Secret:", key)
					cli.Row(w, "Type:", secret.Type)
					cli.Row(w, "Digest:", secret.Digest)
					for _, k := range secret.Keys {
						cli.Row(w, "Key:", k.Key, k.Size, "bytes")
					}
				})
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}
