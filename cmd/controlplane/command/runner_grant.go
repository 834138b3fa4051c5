package command

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// ifAgents is the flag with the grant from which the new one was made.
const ifAgents = "if-agents"

// runnerRegrant is the subcommand that changes what a Runner is granted.
type runnerRegrant struct {
	*app
	file  string
	force bool
	from  string // the grant from which the new one was made
	runnerGrant
}

func newRunnerGrant(a *app) *cobra.Command {
	c := &runnerRegrant{app: a}
	cmd := &cobra.Command{
		Use:   "grant NAME --agents SELECTOR -o FILE",
		Short: "Change which agents a Runner may see and reach",
		Long: `Change which agents a Runner may see and reach. The grant is in the Runner's certificate, so the
Runner gets new credentials. The --ttl of runner create stays the same.

The old credentials are refused from now on, and their open connections are closed within
seconds. Be ready to give the new file to the Runner. A Runner that is bound to ID tokens has none:
leave out -o.`,
		Example: `  pipeops-controlplane runner grant shops --agents 'env=prod' -o shops.json --force

  # All agents:
  pipeops-controlplane runner grant shops --agents '' -o shops.json --force`,
		Args: cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("agents") {
				return cli.Usage(errors.New("--agents is missing: a selector of labels such as env=prod, or '' for all agents"))
			}
			var from *string
			if cmd.Flags().Changed(ifAgents) {
				from = &c.from
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error { return c.run(ctx, admin, args[0], from) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "output", "o", "", "file to write, or - for standard output")
	f.StringVar(&c.from, ifAgents, "", "refuse the change if the Runner has another grant: runner list shows it")
	f.BoolVar(&c.force, "force", false, "replace the file")
	c.add(f)
	_ = cmd.MarkFlagFilename("output", "json")
	return cmd
}

// needsFile refuses a command without -o, unless the Runner has no credentials.
func (c *runnerRegrant) needsFile(ctx context.Context, admin operatorapi.Target, name string) error {
	if c.file != "" {
		return fileIsFree(c.file, c.force)
	}
	all, err := operatorapi.ListRunners.Do(ctx, admin, struct{}{})
	if err != nil || slices.ContainsFunc(all.Items, func(r operatorapi.Runner) bool { return r.Name == name && r.OpenID != nil }) {
		return err
	}
	return cli.Usage(fmt.Errorf("-o is missing: the file to write the new credentials to, for example -o %s.json", name))
}

func (c *runnerRegrant) run(ctx context.Context, admin operatorapi.Target, name string, from *string) error {
	grant, brokerURL, err := c.parse()
	if err != nil {
		return err
	}
	if err := c.needsFile(ctx, admin, name); err != nil {
		return err
	}
	made, err := operatorapi.GrantRunner.Do(ctx, admin, operatorapi.GrantRunnerInput{
		Runner: name, Body: operatorapi.GrantRunnerBody{Agents: grant.String(), BrokerURL: brokerURL, From: from},
	})
	if err != nil {
		return err
	}
	if made.OpenID != nil {
		c.say("Runner %s is granted %s now; its certificates until now are refused", name, grantWords(grant))
		return nil
	}
	where, err := c.deliver(made.Credentials, c.file)
	if err != nil {
		return err
	}
	c.say("new credentials of Runner %s, for %s, are in %s; the old ones are refused from now on", name, grantWords(grant), where)
	c.warnOfSharedAccount(made.Credentials, grant, c.brokerURLFile)
	return nil
}
