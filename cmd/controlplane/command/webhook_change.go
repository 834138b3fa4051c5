package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
)

func newWebhookTest(a *app) *cobra.Command {
	var ca flags.WebhookCA
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test event to a webhook and report the result",
		Long: `Send one event of type io.pipeops.webhook.test to a webhook now, and report the result. The event is
sent ahead of those that wait for the webhook.`,
		Example: "  pipeops-controlplane webhook test pager",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := ca.TLS()
			if err != nil {
				return cli.Usage(err)
			}
			a.settings.Webhooks = webhook.Options{TLS: source, UserAgent: "pipeops-controlplane/" + version}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				result, err := operatorapi.TestWebhook.Do(ctx, admin, operatorapi.WebhookInput{Webhook: args[0]})
				if err != nil {
					return err
				}
				if result.Error != "" {
					return fmt.Errorf("the receiver of webhook %s did not take the event: %s", args[0], result.Error)
				}
				a.say("the receiver of webhook %s has taken the event (%d)", args[0], result.Status)
				return nil
			})
		},
	}
	ca.Add(cmd.Flags())
	flags.MarkOfflineOnly(cmd.Flags(), "webhook-ca")
	return cmd
}

func newWebhookRotate(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Create a new secret for a webhook and print it once",
		Long: `Create a new secret for a webhook and print it. For 24 hours, events are signed with the old
secret as well, so that you can change the receiver without losing an event.`,
		Example: "  pipeops-controlplane webhook rotate pager",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				hook, err := operatorapi.RotateWebhook.Do(ctx, admin, operatorapi.WebhookInput{Webhook: args[0]})
				if err != nil {
					return err
				}
				return a.printWebhook(hook, out, "webhook %s has a new secret; the old one signs as well for 24 hours")
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func newWebhookEnable(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "enable NAME",
		Short: "Enable a webhook that was turned off",
		Long: `Enable a webhook that was turned off because its receiver returned 410 Gone. The control plane
sends events from now on. The timelines show what happened in the meantime.`,
		Example: "  pipeops-controlplane webhook enable pager",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				if _, err := operatorapi.EnableWebhook.Do(ctx, admin, operatorapi.WebhookInput{Webhook: args[0]}); err != nil {
					return err
				}
				a.say("webhook %s is on", args[0])
				return nil
			})
		},
	}
}

func newWebhookDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a webhook and its pending events",
		Example: "  pipeops-controlplane webhook delete pager",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				if _, err := operatorapi.DeleteWebhook.Do(ctx, admin, operatorapi.WebhookInput{Webhook: args[0]}); err != nil {
					return err
				}
				a.say("webhook %s is deleted", args[0])
				return nil
			})
		},
	}
}
