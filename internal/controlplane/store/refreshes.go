package store

import (
	"context"
	"fmt"
)

// EveryAgent is the recipient of a refresh request to all agents.
const EveryAgent = "*"

// Refresh is a refresh request: its agent must send a heartbeat at once.
type Refresh struct {
	AgentID string // or EveryAgent
	Number  int64
}

// RequestRefresh records a refresh request to an agent, or to EveryAgent.
func (t *Tx) RequestRefresh(ctx context.Context, agentID string) error {
	_, err := t.requestRefresh(ctx, agentID)
	return err
}

func (t *Tx) requestRefresh(ctx context.Context, agentID string) (number int64, err error) {
	if err := t.q.QueryRowContext(ctx, `UPDATE refreshes SET number = number + 1 WHERE agent_id = '' RETURNING number`).Scan(&number); err != nil {
		return 0, fmt.Errorf("database: refresh requests: %w", err)
	}
	_, err = t.exec(ctx, `INSERT INTO refreshes (agent_id, number) VALUES ($1, $2) ON CONFLICT (agent_id) DO UPDATE SET number = excluded.number`, agentID, number)
	return number, err
}

// refreshTable has the statements about refresh requests.
type refreshTable struct{ table }

// RefreshesAfter returns the refresh requests after a number, in order.
func (q refreshTable) RefreshesAfter(ctx context.Context, number int64) ([]Refresh, error) {
	return all(ctx, q.q, func(row scanner, r *Refresh) error { return row.Scan(&r.AgentID, &r.Number) },
		`SELECT agent_id, number FROM refreshes WHERE agent_id <> '' AND number > $1 ORDER BY number`, number)
}

// LastRefresh returns the number of the latest refresh request.
func (q refreshTable) LastRefresh(ctx context.Context) (int64, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT number FROM refreshes WHERE agent_id = ''`), func(row scanner, n *int64) error { return row.Scan(n) })
}
