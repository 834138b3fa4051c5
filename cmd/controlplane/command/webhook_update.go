package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newWebhookUpdate(a *app) *cobra.Command {
	var given operatorapi.WebhookSettings
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change where a webhook sends, and which events",
		Long: `Change the settings of a webhook that you give; the others stay, and so does the secret. Events
that wait go to the new URL, too.`,
		Example: "  pipeops-controlplane webhook update pager --type app.failed,alert.firing",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				settings, err := webhookSettings(ctx, admin, args[0])
				if err != nil {
					return err
				}
				for flag, set := range map[string]func(){
					"url": func() { settings.URL = given.URL }, "format": func() { settings.Format = given.Format },
					"type": func() { settings.Types = given.Types }, "agents": func() { settings.Agents = given.Agents },
					"allow-http": func() { settings.AllowHTTP = given.AllowHTTP }, "allow-private": func() { settings.AllowPrivate = given.AllowPrivate },
				} {
					if cmd.Flags().Changed(flag) {
						set()
					}
				}
				if _, err := operatorapi.UpdateWebhook.Do(ctx, admin, operatorapi.UpdateWebhookInput{Webhook: args[0], Body: settings}); err != nil {
					return err
				}
				a.say("webhook %s is changed; try it with `pipeops-controlplane webhook test %[1]s`", args[0])
				return nil
			})
		},
	}
	addWebhookFlags(cmd.Flags(), &given)
	return cmd
}

// webhookSettings returns the settings that a webhook has.
func webhookSettings(ctx context.Context, admin operatorapi.Target, name string) (operatorapi.WebhookSettings, error) {
	list, err := operatorapi.ListWebhooks.Do(ctx, admin, struct{}{})
	if err != nil {
		return operatorapi.WebhookSettings{}, err
	}
	for _, h := range list.Items {
		if h.Name == name {
			return operatorapi.WebhookSettings{URL: h.URL, Format: h.Format, Types: h.Types, Agents: h.Agents, AllowHTTP: h.AllowHTTP, AllowPrivate: h.AllowPrivate}, nil
		}
	}
	return operatorapi.WebhookSettings{}, fmt.Errorf("there is no webhook %q (fix: `pipeops-controlplane webhook list` shows them)", name)
}
