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
	kept "github.com/pipeops/pipeops-vm-agent/runnerapi/login"
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
	var by byToken
	cmd := &cobra.Command{
		Use:   "login FILE|-",
		Short: "Store a Runner's credentials in a context, and use it",
		Long: `Store a Runner's credentials in a context, and make it the current one. An operator makes the file
with ` + "`pipeops-controlplane runner create NAME -o FILE`" + `. You can delete it afterwards.

The context is named after the Runner unless you give --context or ` + cmdutil.EnvContext + `. A login to an
existing context replaces its credentials and keeps its defaults. Commands renew the stored
certificate by themselves.

With --oidc there is no file. The control plane exchanges the ID token of a CI job for a certificate
of 15 minutes, and later commands exchange the token again. A job needs this only where several
commands share one token, and names the context in ` + cmdutil.EnvContext + `. A single command, and
each command in GitHub Actions, exchanges a token by itself where ` + kept.EnvRunner + ` is set.

The contexts are in pipeops/contexts.yaml in your configuration directory, which is
$XDG_CONFIG_HOME or your system's own, such as ~/.config. Only you can read the credentials.`,
		Example: `  pipeops-runner login runner.json
  pipeops-runner login runner.json --context staging --agent shop -n staging
  pipeops-runner login - < runner.json
  pipeops-runner login --oidc --context ci`,
		Args: func(cmd *cobra.Command, args []string) error {
			if by.oidc {
				return cli.ExactArgs()(cmd, args)
			}
			return cli.ExactArgs("FILE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if by.oidc {
				c, err := a.Exchange(cmd.Context(), by.exchange())
				if err != nil {
					return err
				}
				return login(cmd, a, c, &d)
			}
			c, err := readCredentials(a, args[0])
			if err != nil {
				return &cmdutil.ExitError{Err: err, Code: cmdutil.ExitUsage}
			}
			return login(cmd, a, c, &d)
		},
	}
	d.add(cmd)
	by.add(cmd)
	return cmd
}

// byToken are the flags of a login by an ID token. Their defaults are in the environment.
type byToken struct {
	oidc                                   bool
	controlPlane, runner, fingerprint, aud string
	tokenFile                              string
}

func (b *byToken) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&b.oidc, "oidc", false, "exchange an ID token of OpenID Connect, in place of FILE")
	f.StringVar(&b.controlPlane, "control-plane", "", "with --oidc: URL of the control plane (environment: "+kept.EnvControlPlane+")")
	f.StringVar(&b.runner, "runner", "", "with --oidc: name of the Runner (environment: "+kept.EnvRunner+")")
	f.StringVar(&b.fingerprint, "ca-fingerprint", "", "with --oidc: fingerprint of the control plane's CA (environment: "+kept.EnvFingerprint+"; default: the machine's CAs verify it)")
	f.StringVar(&b.aud, "oidc-audience", "", "with --oidc: audience of the token (environment: "+kept.EnvAudience+"; default: the control plane's URL)")
	f.StringVar(&b.tokenFile, "oidc-token-file", "", "with --oidc: file with the token (environment: "+kept.EnvTokenFile+", or "+kept.EnvToken+" with the token itself)")
	_ = cmd.MarkFlagFilename("oidc-token-file") // fails for an unknown flag only
}

func (b *byToken) exchange() kept.Exchange {
	e := kept.EnvironmentExchange()
	e.ControlPlane, e.Runner = cmp.Or(b.controlPlane, e.ControlPlane), cmp.Or(b.runner, e.Runner)
	e.Fingerprint, e.Audience = cmp.Or(b.fingerprint, e.Fingerprint), cmp.Or(b.aud, e.Audience)
	if b.tokenFile != "" {
		e.Token = kept.FileToken(b.tokenFile)
	}
	return e
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
	c, err := contextfile.Runner.Login(cmp.Or(a.ContextNamed(), creds.Runner), func(c *contextfile.Context) { d.apply(cmd, c) }, creds.Write)
	if err != nil {
		return err
	}
	a.Say("logged in at %s as Runner %s; the current context is %s", creds.ControlPlane, creds.Runner, c.Name)
	return nil
}
