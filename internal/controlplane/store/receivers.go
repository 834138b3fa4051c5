package store

import (
	"context"
	"time"
)

// Receiver is an address for the push events of a source's Git server.
type Receiver struct {
	ID                         string
	AgentID, Namespace, Source string
	// Runner made it, and may look at the source.
	Runner string
	// Secret is what requests are signed with. Never print it.
	Secret    string `json:"-"`
	CreatedAt time.Time
	// CalledAt is the time of the last push event, zero for none; Event and Commit are what it has.
	CalledAt      time.Time
	Event, Commit string
	// Look is the number of the look that the agent has not acknowledged; 0 for none.
	Look int64
}

const receiverColumns = `id, agent_id, namespace, source, runner, secret, created_at, called_at, event, commit_id, look`

func scanReceiver(row scanner, r *Receiver) error {
	return row.Scan(&r.ID, &r.AgentID, &r.Namespace, &r.Source, &r.Runner, &r.Secret, moment{&r.CreatedAt}, moment{&r.CalledAt}, &r.Event, &r.Commit, &r.Look)
}

// receiverTable has the statements about receivers.
type receiverTable struct{ table }

// Receiver finds one by its ID.
func (q receiverTable) Receiver(ctx context.Context, id string) (Receiver, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+receiverColumns+` FROM receivers WHERE id = $1`, id), scanReceiver)
}

// ReceiverOf finds the one that a Runner has for a source.
func (q receiverTable) ReceiverOf(ctx context.Context, runner, agentID, namespace, source string) (Receiver, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+receiverColumns+` FROM receivers
		WHERE agent_id = $1 AND namespace = $2 AND source = $3 AND runner = $4`, agentID, namespace, source, runner), scanReceiver)
}

// CountReceivers returns how many a Runner has.
func (q receiverTable) CountReceivers(ctx context.Context, runner string) (int, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT count(*) FROM receivers WHERE runner = $1`, runner), func(row scanner, n *int) error { return row.Scan(n) })
}

// PutReceiver writes one. Of one that is there, it replaces the secret.
func (q receiverTable) PutReceiver(ctx context.Context, r Receiver) error {
	_, err := q.exec(ctx, `INSERT INTO receivers (`+receiverColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, '', '', 0)
		ON CONFLICT (id) DO UPDATE SET secret = excluded.secret, created_at = excluded.created_at`,
		r.ID, r.AgentID, r.Namespace, r.Source, r.Runner, r.Secret, micros(r.CreatedAt))
	return err
}

// DeleteReceiver deletes the one that a Runner has for a source.
func (q receiverTable) DeleteReceiver(ctx context.Context, runner, agentID, namespace, source string) error {
	return q.execOne(ctx, `DELETE FROM receivers WHERE agent_id = $1 AND namespace = $2 AND source = $3 AND runner = $4`, agentID, namespace, source, runner)
}

// RequestLook records a push event, and a refresh request, after which the agent gets the look. A
// receiver that is gone is no error.
func (t *Tx) RequestLook(ctx context.Context, r Receiver) error {
	number, err := t.requestRefresh(ctx, r.AgentID)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE receivers SET called_at = $1, event = $2, commit_id = $3, look = $4 WHERE id = $5`,
		micros(r.CalledAt), r.Event, r.Commit, number, r.ID)
	return err
}

// WaitingLooks returns the receivers with a look that the agent has not acknowledged, the oldest
// first.
func (q receiverTable) WaitingLooks(ctx context.Context, agentID string, limit int) ([]Receiver, error) {
	return all(ctx, q.q, scanReceiver, `SELECT `+receiverColumns+` FROM receivers WHERE agent_id = $1 AND look > 0 ORDER BY look LIMIT $2`, agentID, limit)
}

// AcknowledgeLooks records that an agent has acknowledged the looks up to a number.
func (q receiverTable) AcknowledgeLooks(ctx context.Context, agentID string, number int64) error {
	_, err := q.exec(ctx, `UPDATE receivers SET look = 0 WHERE agent_id = $1 AND look > 0 AND look <= $2`, agentID, number)
	return err
}
