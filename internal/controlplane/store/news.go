package store

import (
	"context"
	"fmt"
)

// EveryAgent is the recipient of news for all agents.
const EveryAgent = "*"

// News means that an agent must be informed at once.
type News struct {
	AgentID string // or EveryAgent
	Number  int64
}

// AddNews records that an agent, or EveryAgent, must be informed at once.
func (t *Tx) AddNews(ctx context.Context, agentID string) error {
	var number int64
	if err := t.q.QueryRowContext(ctx, `UPDATE news SET number = number + 1 WHERE agent_id = '' RETURNING number`).Scan(&number); err != nil {
		return fmt.Errorf("database: news: %w", err)
	}
	_, err := t.exec(ctx, `INSERT INTO news (agent_id, number) VALUES ($1, $2) ON CONFLICT (agent_id) DO UPDATE SET number = excluded.number`, agentID, number)
	return err
}

// newsTable has the statements about news for agents.
type newsTable struct{ table }

// NewsAfter returns the recipients of news after a number, in order.
func (q newsTable) NewsAfter(ctx context.Context, number int64) ([]News, error) {
	return all(ctx, q.q, func(row scanner, n *News) error { return row.Scan(&n.AgentID, &n.Number) },
		`SELECT agent_id, number FROM news WHERE agent_id <> '' AND number > $1 ORDER BY number`, number)
}

// LastNews returns the number of the latest news.
func (q newsTable) LastNews(ctx context.Context) (int64, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT number FROM news WHERE agent_id = ''`), func(row scanner, n *int64) error { return row.Scan(n) })
}
