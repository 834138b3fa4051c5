package operatorapi

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// The calls about webhooks.
var (
	ListWebhooks = Call[struct{}, List[Webhook]]{
		Description{Method: "GET", Path: Prefix + "webhooks", ID: "list-webhooks", Role: administration.RoleViewer, Command: "webhook list",
			Summary: "List webhooks, without their secrets"}, listWebhooks,
	}
	CreateWebhook = Call[CreateWebhookInput, NewWebhook]{
		Description{Method: "POST", Path: Prefix + "webhooks", ID: "create-webhook", Role: administration.RoleOperator, Command: "webhook create",
			Summary: "Create a webhook and its secret", Once: true, Hidden: []string{"url"}}, createWebhook,
	}
	UpdateWebhook = Call[UpdateWebhookInput, Webhook]{
		Description{Method: "PUT", Path: Prefix + "webhooks/{webhook}", ID: "update-webhook", Role: administration.RoleOperator, Command: "webhook update",
			Summary: "Change where a webhook sends, and which events", Hidden: []string{"url"}},
		func(ctx context.Context, a *administration.Admin, in *UpdateWebhookInput) (Webhook, error) {
			options, err := in.Body.options(in.Webhook)
			if err != nil {
				return Webhook{}, err
			}
			hook, err := a.Webhooks.Update(ctx, options)
			return webhookOf(administration.WebhookStatus{Webhook: hook}), err
		},
	}
	RotateWebhook = Call[WebhookInput, NewWebhook]{
		Description{Method: "POST", Path: Prefix + "webhooks/{webhook}/rotate", ID: "rotate-webhook", Role: administration.RoleOperator, Command: "webhook rotate",
			Summary: "Create a new secret for a webhook", Once: true},
		func(ctx context.Context, a *administration.Admin, in *WebhookInput) (NewWebhook, error) {
			return newWebhookOf(a, func() (store.Webhook, error) { return a.Webhooks.Rotate(ctx, in.Webhook) })
		},
	}
	EnableWebhook = Call[WebhookInput, Done]{
		Description{Method: "POST", Path: Prefix + "webhooks/{webhook}/enable", ID: "enable-webhook", Role: administration.RoleOperator, Command: "webhook enable",
			Summary: "Enable a webhook that was turned off"},
		func(ctx context.Context, a *administration.Admin, in *WebhookInput) (Done, error) {
			return Done{}, a.Webhooks.Enable(ctx, in.Webhook)
		},
	}
	TestWebhook = Call[WebhookInput, WebhookTest]{
		Description{Method: "POST", Path: Prefix + "webhooks/{webhook}/test", ID: "test-webhook", Role: administration.RoleOperator, Command: "webhook test",
			Summary: "Send a test event to a webhook now"}, testWebhook,
	}
	DeleteWebhook = Call[WebhookInput, Done]{
		Description{Method: "DELETE", Path: Prefix + "webhooks/{webhook}", ID: "delete-webhook", Role: administration.RoleOperator, Command: "webhook delete",
			Summary: "Delete a webhook and its pending events"},
		func(ctx context.Context, a *administration.Admin, in *WebhookInput) (Done, error) {
			return Done{}, a.Webhooks.Delete(ctx, in.Webhook)
		},
	}
	ListDeliveries = Call[DeliveriesInput, List[Delivery]]{
		Description{Method: "GET", Path: Prefix + "webhooks/{webhook}/deliveries", ID: "list-deliveries", Role: administration.RoleViewer, Command: "webhook deliveries",
			Summary: "List the deliveries of a webhook, newest first"}, listDeliveries,
	}
)

// WebhookInput names a webhook.
type WebhookInput struct {
	Write
	Webhook string `path:"webhook" maxLength:"63"`
}

// CreateWebhookInput describes a webhook.
type CreateWebhookInput struct {
	Write
	Body CreateWebhookBody
}

// CreateWebhookBody describes a webhook.
type CreateWebhookBody struct {
	Name string `json:"name" minLength:"1" maxLength:"63"`
	WebhookSettings
}

// UpdateWebhookInput changes a webhook.
type UpdateWebhookInput struct {
	Write
	Webhook string `path:"webhook" maxLength:"63"`
	Body    WebhookSettings
}

// WebhookSettings are what an operator sets of a webhook.
type WebhookSettings struct {
	URL          string   `json:"url" minLength:"1" maxLength:"2048" doc:"URL to send events to."`
	Format       string   `json:"format,omitempty" enum:"cloudevents,slack,discord,teams" doc:"What requests hold: the event as CloudEvents, which is the default, or a notice for a chat service."`
	Types        []string `json:"types,omitempty" maxItems:"100" doc:"Types of events, such as app.failed or app.*; all if absent."`
	Agents       string   `json:"agents,omitempty" maxLength:"4096" doc:"Label selector of the agents whose events are sent; all if absent."`
	AllowHTTP    bool     `json:"allowHttp,omitempty" doc:"Allow http:// to a receiver on the control plane's machine."`
	AllowPrivate bool     `json:"allowPrivate,omitempty" doc:"Allow addresses that are not on the internet."`
}

// Webhook is a webhook as it is shown: without its secrets.
type Webhook struct {
	Name         string    `json:"name"`
	URL          string    `json:"url"`
	Format       string    `json:"format,omitempty" doc:"Absent for CloudEvents."`
	Types        []string  `json:"types,omitempty"`
	Agents       string    `json:"agents,omitempty"`
	AllowHTTP    bool      `json:"allowHttp,omitempty"`
	AllowPrivate bool      `json:"allowPrivate,omitempty"`
	CreatedAt    time.Time `json:"createdAt"`
	DisabledAt   time.Time `json:"disabledAt,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	Pending      int       `json:"pending"`
	GivenUp      int       `json:"givenUp"`
}

// NewWebhook is a webhook with its secret, which is shown only here.
type NewWebhook struct {
	Webhook
	Secret string `json:"secret"`
}

// WebhookTest is the result of a test event.
type WebhookTest struct {
	Status int    `json:"status" doc:"HTTP status of the receiver; 0 without an answer."`
	Error  string `json:"error,omitempty" doc:"Why the receiver did not take the event."`
}

// DeliveriesInput names a webhook and selects from its deliveries.
type DeliveriesInput struct {
	Webhook string              `path:"webhook" maxLength:"63"`
	State   store.DeliveryState `query:"state" enum:"pending,delivered,given up"`
	Limit   int                 `query:"limit" minimum:"1" maximum:"2000" default:"50"`
}

// Delivery is a delivery as it is shown.
type Delivery struct {
	EventID   string              `json:"eventId"`
	Type      string              `json:"type"`
	AgentID   string              `json:"agentId"`
	Sequence  uint64              `json:"sequence"`
	State     store.DeliveryState `json:"state"`
	Attempts  int                 `json:"attempts"`
	CreatedAt time.Time           `json:"createdAt"`
	TriedAt   time.Time           `json:"triedAt,omitzero"`
	NextAt    time.Time           `json:"nextAt,omitzero"`
	Status    int                 `json:"status,omitempty"`
	Error     string              `json:"error,omitempty"`
}

func webhookOf(s administration.WebhookStatus) Webhook {
	return Webhook{
		Name: s.Name, URL: s.URL, Format: s.Format, Types: s.Types, Agents: s.Agents, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, CreatedAt: s.CreatedAt,
		DisabledAt: s.DisabledAt, Reason: s.Reason, Pending: s.Counts[store.DeliveryPending], GivenUp: s.Counts[store.DeliveryGivenUp],
	}
}

// newWebhookOf leaves out the secret of a dry run, which is none.
func newWebhookOf(a *administration.Admin, change func() (store.Webhook, error)) (NewWebhook, error) {
	hook, err := change()
	if a.IsDryRun() {
		hook.Secret = ""
	}
	return NewWebhook{webhookOf(administration.WebhookStatus{Webhook: hook}), hook.Secret}, err
}

func listWebhooks(ctx context.Context, a *administration.Admin, _ *struct{}) (List[Webhook], error) {
	hooks, err := a.Webhooks.List(ctx)
	list := make([]Webhook, len(hooks))
	for i, h := range hooks {
		list[i] = webhookOf(h)
	}
	return listOf(list, err)
}

func createWebhook(ctx context.Context, a *administration.Admin, in *CreateWebhookInput) (NewWebhook, error) {
	options, err := in.Body.options(in.Body.Name)
	if err != nil {
		return NewWebhook{}, err
	}
	return newWebhookOf(a, func() (store.Webhook, error) { return a.Webhooks.Create(ctx, options) })
}

func (s *WebhookSettings) options(name string) (administration.WebhookOptions, error) {
	grant, err := grantOf(s.Agents)
	return administration.WebhookOptions{
		Name: name, URL: s.URL, Format: s.Format, Types: s.Types, Agents: grant, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate,
	}, err
}

func testWebhook(ctx context.Context, a *administration.Admin, in *WebhookInput) (WebhookTest, error) {
	if a.IsDryRun() {
		_, err := a.Webhooks.Deliveries(ctx, in.Webhook, "", 1) // is there such a webhook?
		return WebhookTest{}, err
	}
	result, err := a.Webhooks.Test(ctx, in.Webhook, a.Settings().Webhooks)
	if err != nil {
		return WebhookTest{}, err
	}
	answer := WebhookTest{Status: result.Status}
	if result.Err != nil {
		answer.Error = result.Err.Error()
	}
	return answer, nil
}

func listDeliveries(ctx context.Context, a *administration.Admin, in *DeliveriesInput) (List[Delivery], error) {
	switch in.State {
	case "", store.DeliveryPending, store.DeliveryDelivered, store.DeliveryGivenUp:
	default:
		return List[Delivery]{}, problem.Errorf(problem.Invalid, "use pending, delivered or 'given up'", "%.40q is not a state of a delivery", in.State).WithField("query.state")
	}
	found, err := a.Webhooks.Deliveries(ctx, in.Webhook, in.State, in.Limit)
	list := make([]Delivery, len(found))
	for i, d := range found {
		list[i] = Delivery{d.EventID, d.Type, d.AgentID, d.Sequence, d.State, d.Attempts, d.CreatedAt, d.TriedAt, d.NextAt, d.Status, d.Error}
		if d.State != store.DeliveryPending || d.Attempts == 0 {
			list[i].NextAt = time.Time{}
		}
	}
	return listOf(list, err)
}
