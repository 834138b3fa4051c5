package config

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigSet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace, digest string
	var write cmdutil.Writing
	var from valueFlags
	cmd := &cobra.Command{
		Use:   "set [AGENT] NAME",
		Short: "Create a config map or replace all its keys",
		Long: `Create a config map or replace all its keys. A key that you do not give is removed.

Apps that use the config map restart when its content changes and their spec says so: see deploy
--restart-on config-maps. Put values that must not be read back into a secret instead.`,
		Example: `  pipeops-runner configmap set shop web-settings --from-literal LOG_LEVEL=info
  pipeops-runner configmap set shop web-settings --from-file settings.yaml --from-file logo=logo.png`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := from.gather(a.In)
			if err != nil {
				return err
			}
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			spec := runnerapi.ConfigMapSpec{Data: v.text, BinaryData: v.binary}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				opts := write.Options()
				opts.Digest = digest
				cm, err := t.ConfigMaps().Set(ctx, key, spec, opts)
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if write.DryRun {
					a.Say("dry run: config map %s would be accepted; nothing was changed", key)
				}
				return out.Write(a.Out, cm, func(w io.Writer) { tables.ConfigMaps(w, cm) })
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	write.AddWriting(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&from.literals, "from-literal", nil, "KEY=VALUE; may be repeated")
	f.StringArrayVar(&from.files, "from-file", nil, "[KEY=]FILE; without KEY, the key is the file's name; may be repeated")
	digestFlag(f, &digest, "config map")
	f.StringVar(&from.stdin, "from-stdin", "", "KEY whose value is read from standard input")
	return cli.Extra(cmd, "--from-literal")
}
