// Package contexts has the commands about contexts: logins at control planes, with defaults.
package contexts

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// maxCredentials is more than a credentials file has.
const maxCredentials = 1 << 20

// defaults are the flags of what a context can set.
type defaults struct{ agent, namespace string }

func (d *defaults) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.agent, "agent", "", "agent of commands without AGENT")
	cmd.Flags().StringVarP(&d.namespace, "namespace", "n", "", "namespace of commands without -n")
}

func (d *defaults) apply(cmd *cobra.Command, c *contextfile.Context) {
	if cmd.Flags().Changed("agent") {
		c.Agent = d.agent
	}
	if cmd.Flags().Changed("namespace") {
		c.Namespace = d.namespace
	}
}

// NewLogin returns the command login.
func NewLogin(a *cmdutil.CLI) *cobra.Command {
	var d defaults
	cmd := &cobra.Command{
		Use:   "login FILE|-",
		Short: "Store a Runner's credentials in a context, and use it",
		Long: `Store a Runner's credentials in a context, and make it the current one. An operator makes the file
with ` + "`pipeops-controlplane runner create NAME -o FILE`" + `. You can delete it afterwards.

The context is named after the Runner unless you give --context. A login to an existing context
replaces its credentials and keeps its defaults. Commands renew the stored certificate by
themselves.

The contexts are in pipeops/contexts.yaml in your configuration directory, which is
$XDG_CONFIG_HOME or your system's own, such as ~/.config. Only you can read the credentials.`,
		Example: `  pipeops-runner login runner.json
  pipeops-runner login runner.json --context staging --agent shop -n staging
  pipeops-runner login - < runner.json`,
		Args: cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := readCredentials(a, args[0])
			if err != nil {
				return &cmdutil.ExitError{Err: err, Code: cmdutil.ExitUsage}
			}
			return login(cmd, a, c, &d)
		},
	}
	d.add(cmd)
	return cmd
}

func readCredentials(a *cmdutil.CLI, path string) (credentials.Credentials, error) {
	if path != "-" {
		return credentials.Load(path)
	}
	text, err := cli.ReadLimited(path, a.In, maxCredentials)
	if err != nil {
		return credentials.Credentials{}, err
	}
	c, err := credentials.Parse(text)
	if err != nil {
		return c, fmt.Errorf("credentials on standard input: %w", err)
	}
	return c, nil
}

func login(cmd *cobra.Command, a *cmdutil.CLI, creds credentials.Credentials, d *defaults) error {
	c, err := contextfile.Runner.Login(cmp.Or(a.Context, creds.Runner), func(c *contextfile.Context) { d.apply(cmd, c) }, creds.Write)
	if err != nil {
		return err
	}
	a.Say("logged in at %s as Runner %s; the current context is %s", creds.ControlPlane, creds.Runner, c.Name)
	return nil
}
