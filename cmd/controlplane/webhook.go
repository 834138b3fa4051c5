package main

import "github.com/spf13/cobra"

func newWebhook(a *app) *cobra.Command {
	return group("webhook", "Manage webhooks, which send events to your URLs over HTTPS",
		newWebhookCreate(a), newWebhookList(a), newWebhookTest(a), newWebhookDeliveries(a), newWebhookRotate(a), newWebhookEnable(a), newWebhookDelete(a))
}
