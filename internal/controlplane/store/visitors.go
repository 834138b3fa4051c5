package store

import (
	"context"
	"time"
)

// VisitorCode is the promise to tell an agent, once, who a visitor of its host is.
type VisitorCode struct {
	// Digest is of the code, which the visitor's browser carries to the agent.
	Digest string
	// AgentID and Host are for whom the code is, and Challenge whose verifier has to come with it.
	AgentID, Host, Challenge string
	// Person is the visitor, in JSON.
	Person    string
	ExpiresAt time.Time
}

const visitorColumns = `digest, agent_id, host, challenge, person, expires_at`

func scanVisitorCode(row scanner, c *VisitorCode) error {
	return row.Scan(&c.Digest, &c.AgentID, &c.Host, &c.Challenge, &c.Person, moment{&c.ExpiresAt})
}

// visitorTable has the statements about visitors of Apps who sign in.
type visitorTable struct{ table }

// InsertVisitorCode adds a code.
func (q visitorTable) InsertVisitorCode(ctx context.Context, c VisitorCode) error {
	_, err := q.exec(ctx, `INSERT INTO visitor_codes (`+visitorColumns+`) VALUES ($1, $2, $3, $4, $5, $6)`,
		c.Digest, c.AgentID, c.Host, c.Challenge, c.Person, micros(c.ExpiresAt))
	return err
}

// TakeVisitorCode deletes a code of an agent and returns it: of two that take it, one gets
// ErrNotFound.
func (q visitorTable) TakeVisitorCode(ctx context.Context, digest, agentID string) (VisitorCode, error) {
	return one(q.q.QueryRowContext(ctx, `DELETE FROM visitor_codes WHERE digest = $1 AND agent_id = $2 RETURNING `+visitorColumns, digest, agentID), scanVisitorCode)
}

// ForgetVisitorCodes deletes the codes that have expired.
func (q visitorTable) ForgetVisitorCodes(ctx context.Context, now time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM visitor_codes WHERE expires_at <= $1`, micros(now))
	return err
}
