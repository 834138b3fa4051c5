package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// webhookModel is the state of a webhook.
type webhookModel struct {
	Name         types.String `tfsdk:"name"`
	URL          types.String `tfsdk:"url"`
	Format       types.String `tfsdk:"format"`
	Types        []string     `tfsdk:"types"`
	Agents       types.String `tfsdk:"agents"`
	AllowHTTP    types.Bool   `tfsdk:"allow_http"`
	AllowPrivate types.Bool   `tfsdk:"allow_private"`
	Secret       types.String `tfsdk:"secret"`
}

func newWebhook() resource.Resource {
	url := required("URL to send events to. It is sensitive, because those of chat services are secrets.")
	url.Sensitive = true
	return &ofOperator[webhookModel]{
		kind: "webhook", key: "name",
		fields: map[string]path.Path{
			"name": path.Root("name"), "url": path.Root("url"), "format": path.Root("format"), "types": path.Root("types"), "agents": path.Root("agents"),
		},
		schema: schema.Schema{
			Description: "A webhook of the control plane.",
			Attributes: map[string]schema.Attribute{
				"name":          fixed(required("Name of the webhook.")),
				"url":           url,
				"format":        defaulted("What requests hold: `cloudevents`, or a notice for `slack`, `discord` or `teams`.", cloudEvents),
				"types":         schema.SetAttribute{Optional: true, ElementType: types.StringType, Description: "Types of events, such as `app.failed` or `app.*`; all if absent."},
				"agents":        defaulted("Label selector of the agents whose events are sent; all if empty.", ""),
				"allow_http":    flag("Allow `http://` to a receiver on the control plane's machine."),
				"allow_private": flag("Allow addresses that are not on the internet."),
				"secret":        secret("Secret with which the receiver verifies events. An imported webhook has none."),
			},
		},
		create: func(ctx context.Context, c *operatorapi.Client, m, _ *webhookModel) error {
			made, err := operatorapi.CreateWebhook.Do(ctx, c, operatorapi.CreateWebhookInput{Body: operatorapi.CreateWebhookBody{Name: m.Name.ValueString(), WebhookSettings: m.settings()}})
			m.Secret = types.StringValue(made.Secret)
			return err
		},
		update: func(ctx context.Context, c *operatorapi.Client, m, _ *webhookModel) error {
			_, err := operatorapi.UpdateWebhook.Do(ctx, c, operatorapi.UpdateWebhookInput{Webhook: m.Name.ValueString(), Body: m.settings()})
			return err
		},
		read: readWebhook,
		remove: func(ctx context.Context, c *operatorapi.Client, m *webhookModel) error {
			_, err := operatorapi.DeleteWebhook.Do(ctx, c, operatorapi.WebhookInput{Webhook: m.Name.ValueString()})
			return err
		},
	}
}

// cloudEvents is the format that lists leave out.
const cloudEvents = "cloudevents"

func (m *webhookModel) settings() operatorapi.WebhookSettings {
	return operatorapi.WebhookSettings{
		URL: m.URL.ValueString(), Format: m.Format.ValueString(), Types: m.Types, Agents: m.Agents.ValueString(),
		AllowHTTP: m.AllowHTTP.ValueBool(), AllowPrivate: m.AllowPrivate.ValueBool(),
	}
}

func readWebhook(ctx context.Context, c *operatorapi.Client, m *webhookModel) (bool, error) {
	list, err := operatorapi.ListWebhooks.Do(ctx, c, struct{}{})
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(list.Items, func(w operatorapi.Webhook) bool { return w.Name == m.Name.ValueString() })
	if at < 0 {
		return false, nil
	}
	w := list.Items[at]
	m.URL, m.Agents = types.StringValue(w.URL), types.StringValue(w.Agents)
	m.Format, m.AllowHTTP, m.AllowPrivate = types.StringValue(cloudEvents), types.BoolValue(w.AllowHTTP), types.BoolValue(w.AllowPrivate)
	if w.Format != "" {
		m.Format = types.StringValue(w.Format)
	}
	if m.Types = w.Types; len(w.Types) == 0 {
		m.Types = nil
	}
	return true, nil
}
