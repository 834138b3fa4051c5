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
		Short: "Send one event to a webhook now, and say what came of it",
		Long: `Send one event of type webhook.test to a webhook now, and say what came of it. It is
sent from where this command runs, past what waits for the webhook.`,
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
		Short: "Give a webhook a new secret, and print it, once",
		Long: `Give a webhook a new secret, and print it. For 24 hours events are signed with the old one
as well, so that the receiver can be changed without losing any.`,
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
		Short: "Turn a webhook on that was turned off because its receiver answered 410 Gone",
		Long: `Turn a webhook on that was turned off because its receiver answered 410 Gone. Events
are sent from now on; what happened meanwhile is in the timelines.`,
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
		Short:   "Forget a webhook, with what was still to be sent to it",
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
