// Package config has the commands about Secrets and ConfigMaps.
package config

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewConfig returns the command config.
func NewConfig(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("configmap", "Manage config maps",
		newConfigSet(a), newConfigGet(a), newConfigList(a), newConfigDelete(a))
}

func configTable(w io.Writer, maps ...runnerapi.ConfigMap) {
	cli.Row(w, "NAMESPACE", "NAME", "KEYS", "DIGEST", "AGE")
	for _, cm := range maps {
		keys := make([]string, len(cm.Keys))
		for i, k := range cm.Keys {
			keys[i] = k.Key
		}
		cli.Row(w, cm.Namespace, cm.Name, strings.Join(keys, ","), cm.Digest, cli.Age(cm.CreatedAt))
	}
}
