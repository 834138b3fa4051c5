package command

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newWebhook(a *app) *cobra.Command {
	return cli.Group("webhook", "Manage webhooks, which send events to your URLs over HTTPS",
		newWebhookCreate(a), newWebhookUpdate(a), newWebhookList(a), newWebhookTest(a), newWebhookDeliveries(a), newWebhookRotate(a), newWebhookEnable(a), newWebhookDelete(a))
}
