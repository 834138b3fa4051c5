package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSecretGet(a *app) *cobra.Command {
	var out output
	var namespace string
	cmd := &cobra.Command{
		Use:               "get AGENT NAME",
		Short:             "Show a secret's keys, their sizes and a digest of the content",
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
				return out.write(a.out, secret, func(w io.Writer) {
					row(w, "Secret:", key)
					row(w, "Type:", secret.Type)
					row(w, "Digest:", secret.Digest)
					for _, k := range secret.Keys {
						row(w, "Key:", k.Key, k.Size, "bytes")
					}
				})
			})
		},
	}
	out.add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}
