package store

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TimelineLength is how many of an agent's last events are kept.
const TimelineLength = 1000

// Queued is an event that is still to be announced.
type Queued struct {
	ID    int64
	Event announce.Event
}

// Enqueue puts an event into the outbox.
func (t *Tx) Enqueue(ctx context.Context, e announce.Event) error {
	body, err := e.Encode()
	if err != nil {
		return err
	}
	t.queued = true
	_, err = t.exec(ctx, `INSERT INTO outbox (event_id, agent_id, body, at) VALUES ($1, $2, $3, $4)`,
		e.ID, e.AgentID, string(body), micros(e.Time))
	return err
}

// Outbox lists the first events that are still to be announced.
func (q queries) Outbox(ctx context.Context, limit int) ([]Queued, error) {
	return all(ctx, q.q, func(row scanner, e *Queued) error {
		var body string
		if err := row.Scan(&e.ID, &body); err != nil {
			return err
		}
		var err error
		e.Event, err = announce.Decode([]byte(body))
		return err
	}, `SELECT id, body FROM outbox ORDER BY id LIMIT $1`, limit)
}

// OutboxLength is how many events are still to be announced.
func (q queries) OutboxLength(ctx context.Context) (int, error) {
	var n int
	if err := q.q.QueryRowContext(ctx, `SELECT COUNT(*) FROM outbox`).Scan(&n); err != nil {
		return 0, fmt.Errorf("database: outbox: %w", err)
	}
	return n, nil
}

// OutboxHead is how many events are still to be announced, and when the first of them
// happened: the zero time when there is none.
func (q queries) OutboxHead(ctx context.Context) (n int, first time.Time, err error) {
	if n, err = q.OutboxLength(ctx); err != nil || n == 0 {
		return n, first, err
	}
	at, err := all(ctx, q.q, func(row scanner, at *time.Time) error { return row.Scan(moment{at}) }, `SELECT at FROM outbox ORDER BY id LIMIT 1`)
	if len(at) > 0 {
		first = at[0]
	}
	return n, first, err
}

// Announced takes the events up to that ID out of the outbox.
func (q queries) Announced(ctx context.Context, upTo int64) error {
	_, err := q.exec(ctx, `DELETE FROM outbox WHERE id <= $1`, upTo)
	return err
}

// Received notes an agent's event and says whether it is new.
func (q queries) Received(ctx context.Context, agentID, eventID string, at time.Time) (bool, error) {
	n, err := q.exec(ctx, `INSERT INTO received (agent_id, event_id, at) VALUES ($1, $2, $3) ON CONFLICT (agent_id, event_id) DO NOTHING`,
		agentID, eventID, micros(at))
	return n > 0, err
}

// ForgetReceived drops the notes of events from before that time.
func (q queries) ForgetReceived(ctx context.Context, before time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM received WHERE at < $1`, micros(before))
	return err
}

// AddToTimeline keeps an event, once, and drops what is too old. The events of an
// agent that is gone are dropped.
func (t *Tx) AddToTimeline(ctx context.Context, e announce.Event) error {
	body, err := e.Encode()
	if err != nil {
		return err
	}
	n, err := t.exec(ctx, `INSERT INTO timeline (event_id, agent_id, sequence, body)
		SELECT $1, id, $2, $3 FROM agents WHERE id = $4 ON CONFLICT (event_id) DO NOTHING`,
		e.ID, e.Sequence, string(body), e.AgentID)
	if err != nil || n == 0 {
		return err
	}
	if e.Sequence > TimelineLength {
		_, err = t.exec(ctx, `DELETE FROM timeline WHERE agent_id = $1 AND sequence <= $2`, e.AgentID, e.Sequence-TimelineLength)
	}
	return err
}

// Timeline lists an agent's last events, oldest first.
func (q queries) Timeline(ctx context.Context, agentID string, limit int) ([]announce.Event, error) {
	return all(ctx, q.q, func(row scanner, e *announce.Event) error {
		var body string
		if err := row.Scan(&body); err != nil {
			return err
		}
		var err error
		*e, err = announce.Decode([]byte(body))
		return err
	}, `SELECT body FROM (SELECT body, sequence FROM timeline WHERE agent_id = $1 ORDER BY sequence DESC LIMIT $2) AS last ORDER BY sequence`,
		agentID, limit)
}

// PutSetting keeps a setting.
func (q queries) PutSetting(ctx context.Context, name, value string) error {
	_, err := q.exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// Settings reads all settings.
func (q queries) Settings(ctx context.Context) (map[string]string, error) {
	list, err := all(ctx, q.q, func(row scanner, kv *[2]string) error { return row.Scan(&kv[0], &kv[1]) }, `SELECT name, value FROM settings`)
	settings := make(map[string]string, len(list))
	for _, kv := range list {
		settings[kv[0]] = kv[1]
	}
	return settings, err
}
