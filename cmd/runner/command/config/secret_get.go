package config

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newSecretGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := a.Named(&cobra.Command{
		Use:     "get [AGENT] NAME",
		Short:   "Show a secret's keys, their sizes and a content digest",
		Example: "  pipeops-runner secret get shop web-env",
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		secret, err := t.Secrets().Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		return out.Write(a.Out, secret, func(w io.Writer) {
			cli.Row(w, "Secret:", key)
			cli.Row(w, "Type:", secret.Type)
			cli.Row(w, "Digest:", secret.Digest)
			for _, k := range secret.Keys {
				cli.Row(w, "Key:", k.Key, k.Size, "bytes")
			}
		})
	})
	out.Add(cmd)
	return cmd
}
