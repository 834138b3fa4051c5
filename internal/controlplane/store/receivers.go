package store

import (
	"context"
	"time"
)

// Receiver is where a Git server tells of pushes to a source of an agent.
type Receiver struct {
	ID                         string
	AgentID, Namespace, Source string
	// Runner made it, and may look at the source.
	Runner string
	// Secret is what requests are signed with. Never print it.
	Secret    string `json:"-"`
	CreatedAt time.Time
	// CalledAt is when the last push was told, zero for never; Event and Commit are what was said.
	CalledAt      time.Time
	Event, Commit string
	// Look is the number of the refresh request by which the agent learns of the push; 0 if it has.
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

// RequestLook records a push that a receiver was told of, and a refresh request by which the agent
// learns of it. A receiver that is gone is no error.
func (t *Tx) RequestLook(ctx context.Context, r Receiver) error {
	number, err := t.requestRefresh(ctx, r.AgentID)
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, `UPDATE receivers SET called_at = $1, event = $2, commit_id = $3, look = $4 WHERE id = $5`,
		micros(r.CalledAt), r.Event, r.Commit, number, r.ID)
	return err
}

// WaitingLooks returns the receivers with a push that the agent has not learned of, the oldest
// first.
func (q receiverTable) WaitingLooks(ctx context.Context, agentID string, limit int) ([]Receiver, error) {
	return all(ctx, q.q, scanReceiver, `SELECT `+receiverColumns+` FROM receivers WHERE agent_id = $1 AND look > 0 ORDER BY look LIMIT $2`, agentID, limit)
}

// LooksLearned records that an agent has learned of the pushes up to a number.
func (q receiverTable) LooksLearned(ctx context.Context, agentID string, number int64) error {
	_, err := q.exec(ctx, `UPDATE receivers SET look = 0 WHERE agent_id = $1 AND look > 0 AND look <= $2`, agentID, number)
	return err
}
