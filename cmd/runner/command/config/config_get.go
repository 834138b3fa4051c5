package config

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newConfigGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var only string
	cmd := a.Named(&cobra.Command{
		Use:   "get [AGENT] NAME",
		Short: "Show a config map with its values",
		Example: `  pipeops-runner configmap get shop web-settings
  pipeops-runner configmap get shop web-settings --key settings.yaml > settings.yaml`,
	}, func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key) error {
		cm, err := t.ConfigMaps().Get(ctx, key)
		if err != nil {
			return cmdutil.At(t, key.String(), err)
		}
		if only != "" {
			return writeValue(a.Out, cm, only)
		}
		return out.Write(a.Out, cm, func(w io.Writer) { configValues(w, cm) })
	})
	out.Add(cmd)
	cmd.Flags().StringVar(&only, "key", "", "write only the value of this key, unchanged")
	return cmd
}

// writeValue writes one value byte by byte, for a file.
func writeValue(w io.Writer, cm runnerapi.ConfigMap, key string) error {
	if text, ok := cm.Data[key]; ok {
		return cli.Raw(w, []byte(text))
	}
	if raw, ok := cm.BinaryData[key]; ok {
		return cli.Raw(w, raw)
	}
	return &cmdutil.ExitError{Err: fmt.Errorf("config map %s/%s has no key %q", cm.Namespace, cm.Name, key), Code: cmdutil.ExitNotFound, Fix: "look at the keys with: pipeops-runner configmap list"}
}

func configValues(w io.Writer, cm runnerapi.ConfigMap) {
	cli.Row(w, "Config map:", runnerapi.Key{Namespace: cm.Namespace, Name: cm.Name})
	cli.Row(w, "Digest:", cm.Digest)
	for _, k := range cm.Keys {
		if value, ok := cm.Data[k.Key]; ok {
			cli.Row(w, k.Key+":", value)
			continue
		}
		cli.Row(w, k.Key+":", k.Size, "bytes, no text")
	}
}
