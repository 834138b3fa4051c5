package administration

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

const (
	// maxWebhooks bounds what each event costs, and how many connections there are.
	maxWebhooks = 100
	// webhookOverlap is how long the old secret signs, too, after a new one was made.
	webhookOverlap = 24 * time.Hour
)

// WebhookOptions describe a webhook.
type WebhookOptions struct {
	Name, URL string
	// Format is that of the requests; empty for CloudEvents.
	Format string
	// Types are those of the events; none means all.
	Types []string
	// Agents are those whose events it gets.
	Agents credentials.Grant
	// AllowHTTP takes http to this machine, AllowPrivate addresses that are not on the
	// internet.
	AllowHTTP, AllowPrivate bool
}

func (o *WebhookOptions) validate() error {
	if !runnerName.MatchString(o.Name) {
		return invalid("use a-z, 0-9 and '-', at most 63 characters", "%q is not a valid webhook name", o.Name)
	}
	return asInvalid(errors.Join(webhook.CheckURL(o.URL, o.AllowHTTP, o.AllowPrivate), webhook.CheckFormat(o.Format), webhook.CheckTypes(o.Types)))
}

// Create creates a webhook. Its Secret can be shown now and never again.
func (a *Webhooks) Create(ctx context.Context, o WebhookOptions) (store.Webhook, error) {
	if err := o.validate(); err != nil {
		return store.Webhook{}, err
	}
	hook := store.Webhook{
		Name: o.Name, Secret: webhook.NewSecret(), CreatedAt: a.now(),
	}
	o.set(&hook)
	return hook, a.store.Update(ctx, func(tx *store.Tx) error {
		there, err := tx.Webhooks(ctx)
		if err != nil {
			return err
		}
		for _, other := range there {
			if other.Name == o.Name {
				return conflict("choose another name, or delete it first", "there is a webhook %s already", o.Name)
			}
		}
		if len(there) >= maxWebhooks {
			return conflict("delete one", "there are %d webhooks, which is the most there may be", len(there))
		}
		return tx.PutWebhook(ctx, hook)
	})
}

func (o *WebhookOptions) set(hook *store.Webhook) {
	hook.URL, hook.Format, hook.Types, hook.Agents, hook.AllowHTTP, hook.AllowPrivate = o.URL, o.Format, o.Types, o.Agents.String(), o.AllowHTTP, o.AllowPrivate
	if hook.Format == webhook.FormatCloudEvents {
		hook.Format = "" // the default
	}
}

// Update changes where a webhook's events are sent, and which ones from now on. Those that wait are
// sent there too. The secret stays.
func (a *Webhooks) Update(ctx context.Context, o WebhookOptions) (store.Webhook, error) {
	if err := o.validate(); err != nil {
		return store.Webhook{}, err
	}
	return a.changeWebhook(ctx, o.Name, o.set)
}

// WebhookStatus is a webhook and how it does. It holds no secret.
type WebhookStatus struct {
	store.Webhook
	Counts map[store.DeliveryState]int
}

// List lists the webhooks, without their secrets.
func (a *Webhooks) List(ctx context.Context) ([]WebhookStatus, error) {
	hooks, err := a.store.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]WebhookStatus, len(hooks))
	for i, hook := range hooks {
		hook.Secret, hook.Previous = "", ""
		list[i].Webhook = hook
		if list[i].Counts, err = a.store.DeliveryCounts(ctx, hook.Name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

type webhookFinder interface {
	Webhook(ctx context.Context, name string) (store.Webhook, error)
}

func findWebhook(ctx context.Context, in webhookFinder, name string) (store.Webhook, error) {
	hook, err := in.Webhook(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return hook, missing("`pipeops-controlplane webhook list` shows them", "there is no webhook %q", name)
	}
	return hook, err
}

// changeWebhook changes one in a transaction.
func (a *Webhooks) changeWebhook(ctx context.Context, name string, change func(*store.Webhook)) (hook store.Webhook, err error) {
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		if hook, err = findWebhook(ctx, tx, name); err != nil {
			return err
		}
		change(&hook)
		return tx.PutWebhook(ctx, hook)
	})
	return hook, err
}

// Rotate gives a webhook a new secret, which can be shown now and never again. The old one
// also signs until Previous ends.
func (a *Webhooks) Rotate(ctx context.Context, name string) (store.Webhook, error) {
	return a.changeWebhook(ctx, name, func(hook *store.Webhook) {
		hook.Previous, hook.PreviousUntil, hook.Secret = hook.Secret, a.now().Add(webhookOverlap), webhook.NewSecret()
	})
}

// Enable turns one on that was turned off because its receiver was gone. What
// was given up stays so.
func (a *Webhooks) Enable(ctx context.Context, name string) error {
	_, err := a.changeWebhook(ctx, name, func(hook *store.Webhook) { hook.DisabledAt, hook.Reason = time.Time{}, "" })
	return err
}

// Delete deletes a webhook and its deliveries.
func (a *Webhooks) Delete(ctx context.Context, name string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		if _, err := findWebhook(ctx, tx, name); err != nil {
			return err
		}
		return tx.DeleteWebhook(ctx, name)
	})
}

// Deliveries lists the last deliveries of a webhook, newest first, in one state
// or, if that is empty, in any.
func (a *Webhooks) Deliveries(ctx context.Context, name string, state store.DeliveryState, limit int) ([]store.Delivery, error) {
	if _, err := findWebhook(ctx, a.store, name); err != nil {
		return nil, err
	}
	return a.store.Deliveries(ctx, name, state, limit)
}

// Test sends one event of type io.pipeops.webhook.test, at once, from this process. The result is
// among the webhook's deliveries.
func (a *Webhooks) Test(ctx context.Context, name string, o webhook.Options) (webhook.Result, error) {
	hook, err := findWebhook(ctx, a.store, name)
	if err != nil {
		return webhook.Result{}, err
	}
	installation, err := a.store.Installation(ctx)
	if err != nil {
		return webhook.Result{}, err
	}
	id := uuid.NewString()
	body, err := json.Marshal(map[string]any{
		"specversion": "1.0", "id": id, "source": "/installations/" + installation, "type": webhook.TypeTest, "time": a.now().UTC(),
		"datacontenttype": "application/json", "data": map[string]string{"webhook": name},
	})
	if err != nil {
		return webhook.Result{}, err
	}
	o.Now = a.now
	sender := webhook.NewSender(hook, o)
	defer sender.Close()
	began := a.now()
	result := sender.Send(ctx, id, body)
	done := store.Delivery{
		Webhook: name, EventID: id, Type: strings.TrimPrefix(webhook.TypeTest, announce.TypePrefix), State: store.DeliveryDelivered, Attempts: 1,
		CreatedAt: began, TriedAt: began, NextAt: began, Status: result.Status,
	}
	if result.Err != nil {
		done.State, done.Error = store.DeliveryGivenUp, result.Err.Error()
	}
	return result, a.store.AddDelivery(ctx, done)
}
