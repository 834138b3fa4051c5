package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newWebhookCreate(a *app) *cobra.Command {
	var opts controlplane.WebhookOptions
	var agents string
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "create NAME --url URL",
		Short: "Create a webhook and print its secret once",
		Long: `Create a webhook and print its secret. From now on, the control plane sends events to the
webhook's URL. The receiver verifies events with the secret, which cannot be shown again.

Events are CloudEvents, signed as Standard Webhooks specifies. They arrive at least once, and
those of one agent arrive in order. The control plane retries for three days when the receiver
does not accept an event. docs/webhooks.md describes the receiver.

The control plane sends nothing to private addresses, or over plain HTTP, unless you allow it
here.`,
		Example: `  pipeops-controlplane webhook create pager --url https://pager.example.com/pipeops --type app.failed --type 'agent.*'
  pipeops-controlplane webhook create shops --url https://intern.example.com/hook --agents env=prod --allow-private >secret`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.URL == "" {
				return usageError{errors.New("--url is missing: where events are to be sent")}
			}
			grant, err := runnerapi.ParseGrant(agents)
			if err != nil {
				return usageError{fmt.Errorf("--agents: %w", err)}
			}
			opts.Name, opts.Agents = args[0], grant
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				hook, err := admin.CreateWebhook(ctx, opts)
				if err != nil {
					return err
				}
				return a.printWebhook(hook, out, "events are sent to webhook %s from now on; try it with `pipeops-controlplane webhook test %[1]s`")
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.URL, "url", "", "URL to send events to, https://HOST/PATH")
	f.StringSliceVar(&opts.Types, "type", nil, "types of events, such as app.failed or app.* (default all)")
	f.StringVar(&agents, "agents", "", "label selector of the agents whose events are sent, such as 'env=prod,region in (eu,us)' (default all agents)")
	f.BoolVar(&opts.AllowHTTP, "allow-http", false, "allow http:// to a receiver on this machine")
	f.BoolVar(&opts.AllowPrivate, "allow-private", false, "allow addresses that are not on the internet, such as 10.0.0.1")
	out.Add(cmd)
	return cmd
}

// printWebhook prints a webhook's secret, which is shown only here.
func (a *app) printWebhook(hook store.Webhook, out cli.Output, hint string) error {
	answer := struct {
		webhookLine
		Secret string `json:"secret"`
	}{lineOf(controlplane.WebhookStatus{Webhook: hook}), hook.Secret}
	err := out.Write(a.out, answer, func(w io.Writer) { cli.Say(w, "%s", hook.Secret) })
	if err == nil && out.Table() {
		a.say(hint, hook.Name)
	}
	return err
}
