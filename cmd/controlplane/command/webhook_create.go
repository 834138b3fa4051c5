package command

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func newWebhookCreate(a *app) *cobra.Command {
	var hook operatorapi.CreateWebhookBody
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "create NAME --url URL",
		Short: "Create a webhook and print its secret once",
		Long: `Create a webhook and print its secret. From now on, the control plane sends events to the
webhook's URL. The receiver verifies events with the secret, which cannot be shown again.

Events are CloudEvents, signed as Standard Webhooks specifies, or notices for a chat service. They
arrive at least once, and those of one agent arrive in order. The control plane retries for three
days when the receiver does not accept an event. docs/operator/webhooks.md describes the receiver.

The control plane sends nothing to private addresses, or over plain HTTP, unless you allow it
here.`,
		Example: `  pipeops-controlplane webhook create pager --url https://pager.example.com/pipeops --type app.failed --type 'agent.*'
  pipeops-controlplane webhook create team --url https://hooks.slack.com/services/T0/B0/KEY --format slack --type 'alert.*'
  pipeops-controlplane webhook create shops --url https://intern.example.com/hook --agents env=prod --allow-private >secret`,
		Args: cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if hook.URL == "" {
				return cli.Usage(errors.New("--url is missing: where events are to be sent"))
			}
			if _, err := credentials.ParseGrant(hook.Agents); err != nil {
				return cli.Usage(fmt.Errorf("--agents: %w", err))
			}
			hook.Name = args[0]
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				made, err := operatorapi.CreateWebhook.Do(ctx, admin, operatorapi.CreateWebhookInput{Body: hook})
				if err != nil {
					return err
				}
				return a.printWebhook(made, out, "events are sent to webhook %s from now on; try it with `pipeops-controlplane webhook test %[1]s`")
			})
		},
	}
	addWebhookFlags(cmd.Flags(), &hook.WebhookSettings)
	out.Add(cmd)
	return cli.Extra(cmd, "--url")
}

func addWebhookFlags(f *pflag.FlagSet, s *operatorapi.WebhookSettings) {
	f.StringVar(&s.URL, "url", "", "URL to send events to, https://HOST/PATH")
	f.StringVar(&s.Format, "format", webhook.FormatCloudEvents, "what requests hold: the event as cloudevents, or a notice for slack, discord or teams")
	f.StringSliceVar(&s.Types, "type", nil, "types of events, such as app.failed or app.* (default all)")
	f.StringVar(&s.Agents, "agents", "", "label selector of the agents whose events are sent, such as 'env=prod,region in (eu,us)' (default all agents)")
	f.BoolVar(&s.AllowHTTP, "allow-http", false, "allow http:// to a receiver on this machine")
	f.BoolVar(&s.AllowPrivate, "allow-private", false, "allow addresses that are not on the internet, such as 10.0.0.1")
}

// printWebhook prints a webhook's secret, which is shown only here.
func (a *app) printWebhook(hook operatorapi.NewWebhook, out cli.Output, hint string) error {
	err := out.Write(a.out, hook, func(w io.Writer) { cli.Say(w, "%s", hook.Secret) })
	if err == nil && out.Table() {
		a.say(hint, hook.Name)
	}
	return err
}
