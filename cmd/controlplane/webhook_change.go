package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
)

func newWebhookTest(a *app) *cobra.Command {
	var ca webhookCA
	cmd := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test event to a webhook and report the result",
		Long: `Send one event of type webhook.test to a webhook now, and report the result. This command sends
the event itself, ahead of the events that wait for the webhook.`,
		Example: "  pipeops-controlplane webhook test pager",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			roots, err := ca.roots()
			if err != nil {
				return usageError{err}
			}
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				result, err := admin.TestWebhook(ctx, args[0], webhook.Options{Roots: roots, UserAgent: "pipeops-controlplane/" + version})
				if err != nil {
					return err
				}
				if result.Err != nil {
					return fmt.Errorf("the receiver of webhook %s did not take the event: %w", args[0], result.Err)
				}
				a.say("the receiver of webhook %s has taken the event (%d)", args[0], result.Status)
				return nil
			})
		},
	}
	ca.add(cmd.Flags())
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
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				hook, err := admin.RotateWebhook(ctx, args[0])
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
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				if err := admin.EnableWebhook(ctx, args[0]); err != nil {
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
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				if err := admin.DeleteWebhook(ctx, args[0]); err != nil {
					return err
				}
				a.say("webhook %s is deleted", args[0])
				return nil
			})
		},
	}
}
