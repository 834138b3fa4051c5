package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newTokenCreate(a *app) *cobra.Command {
	var opts controlplane.TokenOptions
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an enrolment token and print it, once",
		Long: `Make an enrolment token and print it. It cannot be shown again.

The token carries the fingerprint of the control plane's CA, so that an agent
verifies the very first connection without a file to copy.

It may be made before the control plane first serves: it then makes the data directory,
which no other command but serve does.

With --approve whoever has the token can ask to be registered, and no more: the agent
waits until "agent approve" names it. "agents" lists those that wait, each with the
fingerprint of the key that it says in its log as well.`,
		Example: `  pipeops-controlplane token create
  pipeops-controlplane token create --name fleet --uses 50 --ttl 720h --label region=eu
  pipeops-controlplane token create --approve
  AGENT_TOKEN=$(pipeops-controlplane token create)`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := opts.Check(); err != nil {
				return usageError{err}
			}
			return a.firstAdmin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				return a.createToken(ctx, admin, opts, out)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Name, "name", "", "what it is for, shown in lists")
	f.IntVar(&opts.Uses, "uses", 1, "how many agents may register with it; 0 is any number")
	f.DurationVar(&opts.TTL, "ttl", 24*time.Hour, "how long it can be used; 0 is for ever")
	f.StringToStringVar(&opts.Labels, "label", nil, "labels for the agents that register with it")
	f.BoolVar(&opts.Approve, "approve", false, "have each registration wait for an operator's agent approve")
	out.Add(cmd)
	return cmd
}

func (a *app) createToken(ctx context.Context, admin *controlplane.Admin, opts controlplane.TokenOptions, out cli.Output) error {
	at, err := admin.Advertised(ctx)
	if err != nil && !errors.Is(err, controlplane.ErrNeverServed) {
		return err
	}
	token, kept, err := admin.CreateToken(ctx, opts)
	if err != nil {
		return err
	}
	err = a.printToken(token, kept, out)
	if err == nil && out.Table() && at.API != "" {
		a.say("Next, on the cluster: PIPEOPS_CONTROL_PLANE_URL=%s AGENT_TOKEN=(the token) CLUSTER_NAME=(a name) pipeops-agent run", at.API)
	}
	return err
}

// printToken prints a token's secret, which is shown only here.
func (a *app) printToken(token controlapi.Token, kept store.Token, out cli.Output) error {
	answer := struct {
		Text string `json:"token"`
		store.Token
	}{token.Reveal(), kept}
	return out.Write(a.out, answer, func(w io.Writer) { cli.Say(w, "%s", token.Reveal()) })
}
