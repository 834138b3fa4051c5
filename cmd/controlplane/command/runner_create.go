package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// runnerCreate is the subcommand that makes a Runner's credentials.
type runnerCreate struct {
	*app
	file  string
	ttl   time.Duration
	force bool
	runnerGrant
	binding
}

// runnerGrant are the flags of what a Runner is granted.
type runnerGrant struct{ agents, brokerURLFile string }

func (g *runnerGrant) add(f *pflag.FlagSet) {
	f.StringVar(&g.agents, "agents", "", "label selector of the agents that the Runner may see and reach, such as 'env=prod,region in (eu,us)' (default all agents)")
	f.StringVar(&g.brokerURLFile, "broker-url-file", "", "file with the RabbitMQ URL of this Runner's own account (default the account that all Runners share)")
}

// parse returns the grant, and the URL of the Runner's own account if there is one.
func (g *runnerGrant) parse() (grant credentials.Grant, brokerURL string, err error) {
	if grant, err = credentials.ParseGrant(g.agents); err != nil {
		return grant, "", cli.Usage(fmt.Errorf("--agents: %w", err))
	}
	if g.brokerURLFile != "" {
		brokerURL, err = flags.ReadSecret("--broker-url-file", g.brokerURLFile)
	}
	return grant, strings.TrimSpace(brokerURL), err
}

func newRunnerCreate(a *app) *cobra.Command {
	c := &runnerCreate{app: a}
	cmd := &cobra.Command{
		Use:   "create NAME -o FILE",
		Short: "Create a Runner and write its credentials to a file",
		Long: `Create a Runner and write one file with everything that it needs. The file holds the address of
the control plane, the CA, a certificate with its key, and the broker.

Anyone holding the file commands every agent that --agents selects, within the limits of each
cluster's policy: keep it like a password.

The certificate is valid for 24 hours. pipeops-runner and the Go client renew it by themselves, with
their calls to the control plane, until the Runner is revoked. They can do so until 7 days after the
certificate's end. For a Runner that runs less often, set a longer --ttl.

A CI job needs no file. With --oidc-issuer, its Runner has no credentials: pipeops-runner exchanges
the job's ID token for a certificate of 15 minutes. The token must have each --claim, exactly. The
command prints the variables that the job needs.

--agents takes a Kubernetes label selector. The certificate carries the selector, and each agent
compares it with its own labels. RabbitMQ separates announcements only between Runners with
accounts of their own: see --broker-url-file.`,
		Example: `  pipeops-controlplane runner create builder -o builder.json
  pipeops-runner agents --credentials builder.json

  pipeops-controlplane runner create shops -o shops.json --agents 'env=prod,region in (eu,us)'

  # The jobs of one repository at GitHub, for its environment prod:
  pipeops-controlplane runner create ci --agents env=prod --oidc-issuer https://token.actions.githubusercontent.com \
    --claim repository=shop/web --claim environment=prod

  # From a container without a file system to keep the file in:
  (umask 077; kubectl exec pipeops-controlplane-0 -- /pipeops-controlplane runner create builder -o - >builder.json)`,
		Args: cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.given() {
				if err := c.alone(cmd); err != nil {
					return cli.Usage(err)
				}
			} else if c.file == "" {
				return cli.Usage(fmt.Errorf("-o is missing: the file to write, for example -o %s.json", args[0]))
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error { return c.run(ctx, admin, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "output", "o", "", "file to write, or - for standard output")
	cli.DurationVar(f, &c.ttl, "ttl", administration.DefaultRunnerTTL, "lifetime of each certificate, which the Runner renews by itself")
	f.BoolVar(&c.force, "force", false, "replace the file, and the credentials of an existing Runner")
	c.runnerGrant.add(f)
	c.binding.add(f)
	_ = cmd.MarkFlagFilename("output", "json")
	return cmd
}

func (c *runnerCreate) run(ctx context.Context, admin operatorapi.Target, name string) error {
	if c.given() {
		return c.bind(ctx, admin, name)
	}
	if err := fileIsFree(c.file, c.force); err != nil {
		return err
	}
	grant, brokerURL, err := c.parse()
	if err != nil {
		return err
	}
	made, err := operatorapi.CreateRunner.Do(ctx, admin, operatorapi.CreateRunnerInput{Body: operatorapi.CreateRunnerBody{
		Name: name, TTL: operatorapi.Duration(c.ttl), Agents: grant.String(), BrokerURL: brokerURL, Replace: c.force,
	}})
	if err != nil {
		return err
	}
	credentials := made.Credentials
	where, err := c.deliver(credentials, c.file)
	if err != nil {
		return err
	}
	c.say("credentials of Runner %s are in %s, for %s; each certificate is valid for %s, and the Runner renews it by itself", name, where, grantWords(grant), cli.Short(c.ttl))
	if credentials.Broker.URL == "" {
		c.say("They hold no broker: start `serve` with --runner-broker-url-file and create them again for announcements.")
	}
	c.warnOfSharedAccount(credentials, grant, c.brokerURLFile)
	if c.file != stdoutFile {
		c.say("Next: pipeops-runner agents --credentials %s", c.file)
	}
	return nil
}

// stdoutFile stands for standard output.
const stdoutFile = "-"

func fileIsFree(file string, force bool) error {
	if _, err := os.Lstat(file); err == nil && !force && file != stdoutFile {
		return fmt.Errorf("%s exists; name another file, or replace it with --force", file)
	}
	return nil
}

// deliver writes the credentials to the file, or to a redirected output, and reports the place.
func (a *app) deliver(credentials credentials.Credentials, file string) (where string, err error) {
	if file != stdoutFile {
		return file, credentials.Write(file)
	}
	text, err := credentials.Encode()
	if err == nil {
		err = cli.Raw(a.out, text)
	}
	return "standard output", err
}

func grantWords(g credentials.Grant) string {
	if g.All() {
		return "all agents"
	}
	return "agents with " + g.String()
}

// warnOfSharedAccount warns about what the broker does not hide from a Runner.
func (a *app) warnOfSharedAccount(credentials credentials.Credentials, g credentials.Grant, own string) {
	if !g.All() && own == "" && credentials.Broker.URL != "" {
		a.say("The Runner uses the RabbitMQ account that all Runners share, with which it can read the announcements of other agents. " +
			"Give the Runner its own account with --broker-url-file: see docs/operator/runners.md.")
	}
}
