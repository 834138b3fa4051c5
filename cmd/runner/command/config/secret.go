package config

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewSecret returns the command secret.
func NewSecret(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("secret", "Manage secrets, whose values cannot be read back",
		newSecretSet(a), newSecretGet(a), newSecretList(a), newSecretDelete(a))
}

func secretTable(w io.Writer, secrets ...runnerapi.Secret) {
	cli.Row(w, "NAMESPACE", "NAME", "TYPE", "KEYS", "DIGEST", "AGE")
	for _, s := range secrets {
		keys := make([]string, len(s.Keys))
		for i, k := range s.Keys {
			keys[i] = k.Key
		}
		cli.Row(w, s.Namespace, s.Name, s.Type, strings.Join(keys, ","), s.Digest, cli.Age(s.CreatedAt))
	}
}
