package command

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

// maxCredentials is more than a credentials file has.
const maxCredentials = 1 << 20

func newLogin(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "login FILE|-",
		Short: "Store an operator's credentials in a context, and use it",
		Long: `Store an operator's credentials in a context, and make it the current one. Commands then work
from anywhere, without --credentials. An admin makes the file with
` + "`pipeops-controlplane operator create NAME -o FILE`" + `. You can delete it afterwards.

The context is named after the operator unless you give --context. A login to an existing context
replaces its credentials. Commands renew the stored certificate by themselves.

The contexts are in pipeops/operator-contexts.yaml in your configuration directory, which is
$XDG_CONFIG_HOME or your system's own, such as ~/.config. Only you can read the credentials.`,
		Example: `  pipeops-controlplane login alice.json
  pipeops-controlplane login alice.json --context staging
  pipeops-controlplane login - < alice.json`,
		Args: cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			creds, err := readCredentials(args[0], cmd.InOrStdin())
			if err != nil {
				return cli.Usage(err)
			}
			c, err := contextfile.Operator.Login(cmp.Or(a.operator.ContextFlag(), creds.Operator), func(*contextfile.Context) {}, creds.Write)
			if err != nil {
				return err
			}
			a.say("logged in at %s as operator %s; the current context is %s", creds.ControlPlane, creds.Operator, c.Name)
			return nil
		},
	}
}

func readCredentials(path string, in io.Reader) (administration.Credentials, error) {
	if path != "-" {
		return administration.LoadCredentials(path)
	}
	text, err := io.ReadAll(io.LimitReader(in, maxCredentials))
	if err != nil {
		return administration.Credentials{}, err
	}
	c, err := administration.ParseCredentials(text)
	if err != nil {
		return c, fmt.Errorf("credentials on standard input: %w", err)
	}
	return c, nil
}
