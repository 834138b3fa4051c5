package console

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

const webhooksPath = operatorapi.ConsolePath + "/webhooks"

// deliveriesShown is how many deliveries a webhook's page shows.
const deliveriesShown = 200

func (p *controlPlanePages) webhooks(w http.ResponseWriter, r *http.Request) error {
	return show(p.site, w, r, "webhooks", page(r, "Webhooks", webhooksPath, ""), func(ctx context.Context) (web.Rows[operatorapi.Webhook], error) {
		list, err := operatorapi.ListWebhooks.Do(ctx, p.opts.API, struct{}{})
		return web.Paged(list.Items, r.URL.Query()), err
	})
}

// webhookData is what a webhook's page shows.
type webhookData struct {
	operatorapi.Webhook
	Deliveries []operatorapi.Delivery
	State      string
	States     []store.DeliveryState
}

func (p *controlPlanePages) webhook(w http.ResponseWriter, r *http.Request) error {
	name, state := r.PathValue("name"), r.URL.Query().Get("state")
	return show(p.site, w, r, "webhook", page(r, name, webhooksPath, ""), func(ctx context.Context) (webhookData, error) {
		data := webhookData{State: state, States: []store.DeliveryState{store.DeliveryPending, store.DeliveryDelivered, store.DeliveryGivenUp}}
		list, err := operatorapi.ListWebhooks.Do(ctx, p.opts.API, struct{}{})
		if err != nil {
			return data, err
		}
		for _, hook := range list.Items {
			if hook.Name == name {
				data.Webhook = hook
			}
		}
		if data.Name == "" {
			return data, problem.Errorf(problem.NotFound, "choose one in the list of webhooks", "there is no webhook %.100q", name)
		}
		found, err := operatorapi.ListDeliveries.Do(ctx, p.opts.API, operatorapi.DeliveriesInput{Webhook: name, State: store.DeliveryState(state), Limit: deliveriesShown})
		data.Deliveries = found.Items
		return data, err
	})
}

func webhookPath(name string) string { return webhooksPath + "/" + url.PathEscape(name) }

func webhookQuestion(name string, q web.Question) web.Question {
	q.Back, q.BackText = webhookPath(name), name
	return q
}

// webhookChange is a change of a webhook that has nothing to fill in.
func webhookChange(call, verb, title, text, button string, danger bool, do func(context.Context, operatorapi.Target, form) (outcome, error)) change {
	return change{call: call, title: title, page: webhooksPath, do: do, ask: func(name string, _ url.Values) web.Question {
		return webhookQuestion(name, web.Question{Text: text, Button: button, Danger: danger, Command: web.CommandLine(program+" webhook "+verb, name)})
	}}
}

// webhookFields are the fields of a form for a webhook, as it is.
func webhookFields(hook operatorapi.Webhook) []web.Field {
	return []web.Field{
		{Kind: "text", Name: "url", Label: "URL", Required: true, Value: hook.URL, Hint: "Where events are sent."},
		{Kind: "select", Name: "format", Label: "Format", Value: hook.Format, Options: webhook.Formats, Hint: "The others than cloudevents are notices for the incoming webhook of a chat service."},
		{Kind: "choices", Name: "types", Label: "Types of events", Values: hook.Types, Options: webhook.Types(), Hint: "None chosen stands for all, app.* for all that begin with app."},
		{Kind: "text", Name: "agents", Label: "Agents", Value: hook.Agents, Hint: "A label selector, such as env=prod. Empty for all agents."},
		{Kind: "checkbox", Name: "private", Label: "Allow addresses that are not on the internet", Value: strconv.FormatBool(hook.AllowPrivate)},
		{Kind: "checkbox", Name: "http", Label: "Allow http to a receiver on the control plane's machine", Value: strconv.FormatBool(hook.AllowHTTP)},
	}
}

func webhookSettings(f form) operatorapi.WebhookSettings {
	return operatorapi.WebhookSettings{
		URL: f.text("url"), Format: f.text("format"), Types: f.values["types"], Agents: f.text("agents"), AllowPrivate: f.on("private"), AllowHTTP: f.on("http"),
	}
}

var webhookChanges = map[string]change{
	"/webhooks/new": {
		call: operatorapi.CreateWebhook.ID, title: "Create a webhook", page: webhooksPath,
		ask: func(string, url.Values) web.Question {
			return web.Question{
				Text:   "From now on, events go to the URL. The next page has the secret that the receiver verifies them with.",
				Button: "Create the webhook", Command: program + " webhook create NAME --url URL --format FORMAT --type 'app.*' --agents SELECTOR",
				Back: webhooksPath, BackText: "Webhooks",
				Fields: append([]web.Field{{Kind: "text", Name: "name", Label: "Name", Required: true, Hint: "a-z, 0-9 and '-'."}}, webhookFields(operatorapi.Webhook{})...),
			}
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			hook, err := operatorapi.CreateWebhook.Do(ctx, t, operatorapi.CreateWebhookInput{Write: f.write(), Body: operatorapi.CreateWebhookBody{
				Name: f.text("name"), WebhookSettings: webhookSettings(f),
			}})
			return madeWebhook(hook, err)
		},
	},
	"/webhooks/{name}/edit": {
		call: operatorapi.UpdateWebhook.ID, title: "Change {name}", page: webhooksPath,
		askOf: func(ctx context.Context, t operatorapi.Target, name string, _ url.Values) (web.Question, error) {
			list, err := operatorapi.ListWebhooks.Do(ctx, t, struct{}{})
			hook := operatorapi.Webhook{}
			for _, h := range list.Items {
				if h.Name == name {
					hook = h
				}
			}
			return webhookQuestion(name, web.Question{
				Text:   "Events that wait go to the new URL, too. The secret stays.",
				Button: "Change the webhook", Command: web.CommandLine(program+" webhook update", name, "--url", hook.URL), Fields: webhookFields(hook),
			}), err
		},
		do: func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.UpdateWebhook.Do(ctx, t, operatorapi.UpdateWebhookInput{Write: f.write(), Webhook: f.name, Body: webhookSettings(f)})
			return outcome{to: webhookPath(f.name), done: "update-webhook"}, err
		},
	},
	"/webhooks/{name}/rotate": webhookChange(operatorapi.RotateWebhook.ID, "rotate", "Make a new secret for {name}",
		"Events are signed with the new secret, and with the old one too for a day.", "Make a new secret", false,
		func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			return madeWebhook(operatorapi.RotateWebhook.Do(ctx, t, operatorapi.WebhookInput{Write: f.write(), Webhook: f.name}))
		}),
	"/webhooks/{name}/enable": webhookChange(operatorapi.EnableWebhook.ID, "enable", "Enable {name}",
		"Events are sent again, the waiting ones first.", "Enable the webhook", false,
		func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.EnableWebhook.Do(ctx, t, operatorapi.WebhookInput{Write: f.write(), Webhook: f.name})
			return outcome{to: webhookPath(f.name), done: "enable"}, err
		}),
	"/webhooks/{name}/test": webhookChange(operatorapi.TestWebhook.ID, "test", "Test {name}",
		"A test event is sent now.", "Send a test event", false,
		func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			result, err := operatorapi.TestWebhook.Do(ctx, t, operatorapi.WebhookInput{Write: f.write(), Webhook: f.name})
			done := "test-webhook"
			if result.Error != "" {
				done = "test-webhook-failed"
			}
			return outcome{to: webhookPath(f.name), done: done}, err
		}),
	"/webhooks/{name}/delete": webhookChange(operatorapi.DeleteWebhook.ID, "delete", "Delete {name}",
		"The webhook is deleted, with the events that wait for it.", "Delete the webhook", true,
		func(ctx context.Context, t operatorapi.Target, f form) (outcome, error) {
			_, err := operatorapi.DeleteWebhook.Do(ctx, t, operatorapi.WebhookInput{Write: f.write(), Webhook: f.name})
			return outcome{to: webhooksPath, done: "delete-webhook"}, err
		}),
}

func madeWebhook(hook operatorapi.NewWebhook, err error) (outcome, error) {
	return outcome{made: &made{
		Text: "The secret is shown here once. The receiver verifies events with it.", Label: "Secret", Secret: hook.Secret,
		NextText: "Send a test event once the receiver has it:", Next: program + " webhook test " + hook.Name, Back: webhookPath(hook.Name), BackText: hook.Name,
	}}, err
}
