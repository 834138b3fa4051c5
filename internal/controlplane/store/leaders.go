package store

import (
	"context"
	"errors"
)

// EventLeader is the leadership among an agent's replicas that sends its Apps' events.
type EventLeader struct {
	AgentID string
	// Lease is the UID of the Lease by which they elect, and Term how often it has changed hands.
	Lease string
	Term  int64
	// Call counts what this leadership has sent.
	Call int64
}

// EventLeader returns the leadership and the call that sent an agent's last events.
func (q eventTable) EventLeader(ctx context.Context, agentID string) (EventLeader, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT agent_id, lease, term, call FROM event_leaders WHERE agent_id = $1`, agentID),
		func(row scanner, known *EventLeader) error {
			return row.Scan(&known.AgentID, &known.Lease, &known.Term, &known.Call)
		})
}

// Leads records a call of a leadership, and reports whether no later one is known. With another
// Lease, the terms start again.
func (t *Tx) Leads(ctx context.Context, l EventLeader) (bool, error) {
	known, err := t.EventLeader(ctx, l.AgentID)
	switch {
	case err != nil && !errors.Is(err, ErrNotFound):
		return false, err
	case err == nil && known == l:
		return true, nil
	case err == nil && l.Before(known):
		return false, nil
	}
	_, err = t.exec(ctx, `INSERT INTO event_leaders (agent_id, lease, term, call) VALUES ($1, $2, $3, $4)
		ON CONFLICT (agent_id) DO UPDATE SET lease = excluded.lease, term = excluded.term, call = excluded.call`, l.AgentID, l.Lease, l.Term, l.Call)
	return err == nil, err
}

// Before reports whether a call came before a known one.
func (l EventLeader) Before(known EventLeader) bool {
	if l.Lease != known.Lease || l.Term != known.Term {
		return l.Lease == known.Lease && l.Term < known.Term
	}
	return l.Call < known.Call
}
