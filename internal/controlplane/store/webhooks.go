package store

import (
	"context"
	"fmt"
	"time"
)

// Webhook is where events are sent to.
type Webhook struct {
	Name string
	URL  string
	// Format is that of the requests; empty for CloudEvents.
	Format string
	// Types are those of the events, such as app.failed or app.*; none means all.
	Types []string
	// Agents is a selector of labels; empty means all.
	Agents string
	// AllowHTTP and AllowPrivate loosen which addresses may be called.
	AllowHTTP, AllowPrivate bool
	// Secret signs. Previous does so as well until PreviousUntil. Never print them.
	Secret        string `json:"-"`
	Previous      string `json:"-"`
	PreviousUntil time.Time
	CreatedAt     time.Time
	// DisabledAt is when it was turned off, for Reason; zero while it is on.
	DisabledAt time.Time
	Reason     string
}

// Enabled reports whether anything is sent to it.
func (w *Webhook) Enabled() bool { return w.DisabledAt.IsZero() }

// DeliveryState is the state of a delivery.
type DeliveryState string

// The states of a delivery.
const (
	DeliveryPending   DeliveryState = "pending"
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryGivenUp   DeliveryState = "given up"
)

// Delivery is one event for one webhook.
type Delivery struct {
	ID       int64
	Webhook  string
	EventID  string
	AgentID  string
	Sequence uint64
	Type     string
	Body     string // empty once it is done with
	State    DeliveryState
	Attempts int
	// CreatedAt is when it was queued, TriedAt the last attempt, NextAt the next.
	CreatedAt, TriedAt, NextAt time.Time
	Status                     int // HTTP's, of the last attempt; 0 without an answer
	Error                      string
}

const webhookColumns = `name, url, format, types, agents, allow_http, allow_private, secret, previous_secret, previous_until, created_at, disabled_at, reason`

func scanWebhook(row scanner, w *Webhook) error {
	return row.Scan(&w.Name, &w.URL, &w.Format, document{&w.Types}, &w.Agents, &w.AllowHTTP, &w.AllowPrivate, &w.Secret, &w.Previous,
		moment{&w.PreviousUntil}, moment{&w.CreatedAt}, moment{&w.DisabledAt}, &w.Reason)
}

// webhookTable has the statements about webhooks and their deliveries.
type webhookTable struct{ table }

// Webhooks lists them by name.
func (q webhookTable) Webhooks(ctx context.Context) ([]Webhook, error) {
	return all(ctx, q.q, scanWebhook, `SELECT `+webhookColumns+` FROM webhooks ORDER BY name`)
}

// Webhook finds one by its name.
func (q webhookTable) Webhook(ctx context.Context, name string) (Webhook, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+webhookColumns+` FROM webhooks WHERE name = $1`, name), scanWebhook)
}

// PutWebhook writes one, new or not.
func (q webhookTable) PutWebhook(ctx context.Context, w Webhook) error {
	_, err := q.exec(ctx, `INSERT INTO webhooks (`+webhookColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (name) DO UPDATE SET url = excluded.url, format = excluded.format, types = excluded.types, agents = excluded.agents,
			allow_http = excluded.allow_http, allow_private = excluded.allow_private, secret = excluded.secret,
			previous_secret = excluded.previous_secret, previous_until = excluded.previous_until,
			disabled_at = excluded.disabled_at, reason = excluded.reason`,
		w.Name, w.URL, w.Format, asJSON(w.Types), w.Agents, truth(w.AllowHTTP), truth(w.AllowPrivate), w.Secret, w.Previous,
		micros(w.PreviousUntil), micros(w.CreatedAt), micros(w.DisabledAt), w.Reason)
	return err
}

// DeleteWebhook deletes a webhook and its deliveries.
func (q webhookTable) DeleteWebhook(ctx context.Context, name string) error {
	return q.execOne(ctx, `DELETE FROM webhooks WHERE name = $1`, name)
}

// DisableWebhook disables a webhook and gives up its deliveries.
func (t *Tx) DisableWebhook(ctx context.Context, name, reason string, at time.Time) error {
	if _, err := t.exec(ctx, `UPDATE webhooks SET disabled_at = $1, reason = $2 WHERE name = $3`, micros(at), reason, name); err != nil {
		return err
	}
	_, err := t.exec(ctx, `UPDATE deliveries SET state = $1, body = '', error = $2 WHERE webhook = $3 AND state = 'pending'`,
		DeliveryGivenUp, "the webhook was turned off: "+reason, name)
	return err
}

const deliveryColumns = `webhook, event_id, agent_id, sequence, type, body, state, attempts, created_at, tried_at, next_at, status, error`

func scanDelivery(row scanner, d *Delivery) error {
	return row.Scan(&d.ID, &d.Webhook, &d.EventID, &d.AgentID, &d.Sequence, &d.Type, &d.Body, &d.State, &d.Attempts,
		moment{&d.CreatedAt}, moment{&d.TriedAt}, moment{&d.NextAt}, &d.Status, &d.Error)
}

// QueueDelivery queues an event for a webhook, once, and gives up the one that has
// waited longest where more than most would wait.
func (t *Tx) QueueDelivery(ctx context.Context, d Delivery, most int) error {
	n, err := t.exec(ctx, `INSERT INTO deliveries (`+deliveryColumns+`) VALUES ($1, $2, $3, $4, $5, $6, 'pending', 0, $7, 0, $7, 0, '')
		ON CONFLICT (webhook, event_id) DO NOTHING`,
		d.Webhook, d.EventID, d.AgentID, d.Sequence, d.Type, d.Body, micros(d.CreatedAt))
	if err != nil || n == 0 {
		return err
	}
	t.due = true
	_, err = t.exec(ctx, `UPDATE deliveries SET state = $1, body = '', error = 'too many were waiting' WHERE webhook = $2 AND state = 'pending' AND id <=
		(SELECT id FROM deliveries WHERE webhook = $2 AND state = 'pending' ORDER BY id DESC LIMIT 1 OFFSET $3)`,
		DeliveryGivenUp, d.Webhook, most)
	return err
}

// AddDelivery adds a delivery that is done, such as that of a test.
func (q webhookTable) AddDelivery(ctx context.Context, d Delivery) error {
	_, err := q.exec(ctx, `INSERT INTO deliveries (`+deliveryColumns+`) VALUES ($1, $2, $3, $4, $5, '', $6, $7, $8, $9, $10, $11, $12)`,
		d.Webhook, d.EventID, d.AgentID, d.Sequence, d.Type, d.State, d.Attempts, micros(d.CreatedAt), micros(d.TriedAt), micros(d.NextAt), d.Status, d.Error)
	return err
}

// WaitingDeliveries returns how many events wait for webhooks, and when the first of them was
// queued; zero when none waits.
func (q webhookTable) WaitingDeliveries(ctx context.Context) (n int, oldest time.Time, err error) {
	err = q.q.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM deliveries WHERE state = 'pending'`).Scan(&n, moment{&oldest})
	if err != nil {
		return 0, oldest, fmt.Errorf("database: deliveries: %w", err)
	}
	return n, oldest, nil
}

// Lane is an agent whose events a webhook receives, and the time of the next delivery.
type Lane struct {
	AgentID string
	NextAt  time.Time
}

// Lanes lists the agents that events wait of, those that are due longest first.
func (q webhookTable) Lanes(ctx context.Context, webhook string) ([]Lane, error) {
	return all(ctx, q.q, func(row scanner, l *Lane) error { return row.Scan(&l.AgentID, moment{&l.NextAt}) },
		`SELECT head.agent_id, d.next_at FROM (SELECT agent_id, MIN(sequence) AS sequence FROM deliveries
			WHERE webhook = $1 AND state = 'pending' GROUP BY agent_id) AS head
		JOIN deliveries AS d ON d.webhook = $1 AND d.state = 'pending' AND d.agent_id = head.agent_id AND d.sequence = head.sequence
		ORDER BY d.next_at, d.id`, webhook)
}

// PendingDeliveries lists the first events of an agent that are to be sent.
func (q webhookTable) PendingDeliveries(ctx context.Context, webhook, agentID string, limit int) ([]Delivery, error) {
	return all(ctx, q.q, scanDelivery, `SELECT id, `+deliveryColumns+` FROM deliveries
		WHERE webhook = $1 AND agent_id = $2 AND state = 'pending' ORDER BY sequence LIMIT $3`, webhook, agentID, limit)
}

// SaveDelivery writes the result of an attempt, unless the delivery was given up meanwhile.
func (q webhookTable) SaveDelivery(ctx context.Context, d Delivery) error {
	_, err := q.exec(ctx, `UPDATE deliveries SET state = $1, attempts = $2, tried_at = $3, next_at = $4, status = $5, error = $6,
			body = CASE WHEN $1 = 'pending' THEN body ELSE '' END WHERE id = $7 AND state = 'pending'`,
		d.State, d.Attempts, micros(d.TriedAt), micros(d.NextAt), d.Status, d.Error, d.ID)
	return err
}

// Deliveries lists the last ones of a webhook, newest first, in one state or, if that
// is empty, in any.
func (q webhookTable) Deliveries(ctx context.Context, webhook string, state DeliveryState, limit int) ([]Delivery, error) {
	return all(ctx, q.q, scanDelivery, `SELECT id, `+deliveryColumns+` FROM deliveries
		WHERE webhook = $1 AND ($2 = '' OR state = $2) ORDER BY id DESC LIMIT $3`, webhook, state, limit)
}

// DeliveryCounts returns how many of a webhook's deliveries are in each state.
func (q webhookTable) DeliveryCounts(ctx context.Context, webhook string) (map[DeliveryState]int, error) {
	type count struct {
		state DeliveryState
		n     int
	}
	list, err := all(ctx, q.q, func(row scanner, c *count) error { return row.Scan(&c.state, &c.n) },
		`SELECT state, COUNT(*) FROM deliveries WHERE webhook = $1 GROUP BY state`, webhook)
	counts := make(map[DeliveryState]int, len(list))
	for _, c := range list {
		counts[c.state] = c.n
	}
	return counts, err
}

// TrimDeliveries drops the oldest of those that a webhook is done with.
func (q webhookTable) TrimDeliveries(ctx context.Context, webhook string, keep int) error {
	for _, state := range []DeliveryState{DeliveryDelivered, DeliveryGivenUp} {
		_, err := q.exec(ctx, `DELETE FROM deliveries WHERE webhook = $1 AND state = $2 AND id <=
			(SELECT id FROM deliveries WHERE webhook = $1 AND state = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`, webhook, state, keep)
		if err != nil {
			return err
		}
	}
	return nil
}
