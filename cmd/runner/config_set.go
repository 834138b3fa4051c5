package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigSet(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	var write writing
	var from valueFlags
	cmd := &cobra.Command{
		Use:   "set AGENT NAME",
		Short: "Create a config map or replace all its keys",
		Long: `Create a config map or replace all its keys. A key that you do not give is removed.

Apps that use the config map restart when its content changes and their spec says so: see deploy
--restart-on config-maps. Put values that must not be read back into a secret instead.`,
		Example: `  pipeops-runner config set shop web-settings --from-literal LOG_LEVEL=info
  pipeops-runner config set shop web-settings --from-file settings.yaml --from-file logo=logo.png`,
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := from.gather(a.in)
			if err != nil {
				return err
			}
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			spec := runnerapi.ConfigMapSpec{Data: v.text, BinaryData: v.binary}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				cm, err := t.PutConfigMap(ctx, key, spec, write.options())
				if err != nil {
					return at(t, key.String(), err)
				}
				if write.dryRun {
					a.say("dry run: config map %s would be taken; nothing was changed", key)
				}
				return out.Write(a.out, cm, func(w io.Writer) { configTable(w, cm) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	write.addWriting(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&from.literals, "from-literal", nil, "KEY=VALUE; may be repeated")
	f.StringArrayVar(&from.files, "from-file", nil, "[KEY=]FILE; without KEY, the key is the file's name; may be repeated")
	f.StringVar(&from.stdin, "from-stdin", "", "KEY whose value is read from standard input")
	return cmd
}
