package store

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Enqueue puts an event into the outbox.
func (t *Tx) Enqueue(ctx context.Context, e announce.Event) error {
	body, err := e.Encode()
	if err != nil {
		return err
	}
	t.queued = true
	_, err = t.exec(ctx, `INSERT INTO outbox (event_id, agent_id, body, at, type, subject, size) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		e.ID, e.AgentID, string(body), micros(e.Time), e.Type, subjectOf(e), len(body))
	return err
}

// eventTable has the statements about events that agents sent, and settings.
type eventTable struct{ table }

// OutboxLength returns how many events are still to be announced.
func (q eventTable) OutboxLength(ctx context.Context) (int, error) {
	var n int
	if err := q.q.QueryRowContext(ctx, `SELECT COUNT(*) FROM outbox`).Scan(&n); err != nil {
		return 0, fmt.Errorf("database: outbox: %w", err)
	}
	return n, nil
}

// Announced removes the events up to that ID from the outbox.
func (q eventTable) Announced(ctx context.Context, upTo int64) error {
	_, err := q.exec(ctx, `DELETE FROM outbox WHERE id <= $1`, upTo)
	return err
}

// Received records an agent's event and reports whether it is new.
func (q eventTable) Received(ctx context.Context, agentID, eventID string, at time.Time) (bool, error) {
	n, err := q.exec(ctx, `INSERT INTO received (agent_id, event_id, at) VALUES ($1, $2, $3) ON CONFLICT (agent_id, event_id) DO NOTHING`,
		agentID, eventID, micros(at))
	return n > 0, err
}

// ForgetReceived deletes the records of events from before that time.
func (q eventTable) ForgetReceived(ctx context.Context, before time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM received WHERE at < $1`, micros(before))
	return err
}

// PutSetting keeps a setting.
func (q eventTable) PutSetting(ctx context.Context, name, value string) error {
	_, err := q.exec(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, name, value)
	return err
}

// Installation returns the random name of this installation.
func (q eventTable) Installation(ctx context.Context) (name string, err error) {
	err = q.q.QueryRowContext(ctx, `SELECT value FROM settings WHERE name = $1`, settingInstallation).Scan(&name)
	if err != nil {
		return "", fmt.Errorf("database: installation: %w", err)
	}
	return name, nil
}

// Settings reads all settings.
func (q eventTable) Settings(ctx context.Context) (map[string]string, error) {
	list, err := all(ctx, q.q, func(row scanner, kv *[2]string) error { return row.Scan(&kv[0], &kv[1]) }, `SELECT name, value FROM settings`)
	settings := make(map[string]string, len(list))
	for _, kv := range list {
		settings[kv[0]] = kv[1]
	}
	return settings, err
}
