package store

import (
	"context"
	"errors"
	"time"
)

// HostClaim is what an agent has of a host that its routes name.
type HostClaim struct {
	AgentID, Host string
	// Proof is how it is proven that the agent may serve the host; empty while it is not.
	Proof string
	// ClaimedAt is when the agent first named the host, ProvenAt when that was first proven, and
	// CheckedAt when it was last looked at.
	ClaimedAt, ProvenAt, CheckedAt time.Time
	// LostAt is when the proof was first missed; zero while it is there.
	LostAt time.Time
	// NextAt is when it is looked at again.
	NextAt time.Time
	// Reason is why it is not proven, or no longer.
	Reason string
	// Mode is how a gateway reaches the host; empty if it has no endpoint that was tried.
	// ModeReason is why not directly. PutClaim leaves both as they are.
	Mode, ModeReason string
}

const (
	claimColumns = `agent_id, host, proof, claimed_at, proven_at, checked_at, lost_at, next_at, reason`
	claimFields  = claimColumns + `, mode, mode_reason`
)

func scanClaim(row scanner, c *HostClaim) error {
	return row.Scan(&c.AgentID, &c.Host, &c.Proof, moment{&c.ClaimedAt}, moment{&c.ProvenAt}, moment{&c.CheckedAt},
		moment{&c.LostAt}, moment{&c.NextAt}, &c.Reason, &c.Mode, &c.ModeReason)
}

const ofLiveAgents = `agent_id IN (SELECT id FROM agents WHERE revoked_at = 0)`

// hostTable has the statements about claims to hosts.
type hostTable struct{ table }

// ClaimsOf lists the hosts that an agent claims.
func (q hostTable) ClaimsOf(ctx context.Context, agentID string) ([]HostClaim, error) {
	return all(ctx, q.q, scanClaim, `SELECT `+claimFields+` FROM host_claims WHERE agent_id = $1 ORDER BY host`, agentID)
}

// ClaimsTo lists the claims to a host of agents that are not revoked, the oldest first.
func (q hostTable) ClaimsTo(ctx context.Context, host string) ([]HostClaim, error) {
	return all(ctx, q.q, scanClaim, `SELECT `+claimFields+` FROM host_claims WHERE host = $1 AND `+ofLiveAgents+` ORDER BY claimed_at, agent_id`, host)
}

// Claims lists the claims of all agents that are not revoked, by host.
func (q hostTable) Claims(ctx context.Context) ([]HostClaim, error) {
	return all(ctx, q.q, scanClaim, `SELECT `+claimFields+` FROM host_claims WHERE `+ofLiveAgents+` ORDER BY host, claimed_at, agent_id`)
}

// ClaimsBeside lists the claims to all hosts that an agent claims, by host: its own and those of
// others.
func (q hostTable) ClaimsBeside(ctx context.Context, agentID string) ([]HostClaim, error) {
	return all(ctx, q.q, scanClaim, `SELECT `+claimFields+` FROM host_claims
		WHERE host IN (SELECT host FROM host_claims WHERE agent_id = $1) AND `+ofLiveAgents+` ORDER BY host, claimed_at, agent_id`, agentID)
}

// DueClaims lists claims that are to be looked at, the longest due first, and of one agent at most
// each.
func (q hostTable) DueClaims(ctx context.Context, now time.Time, limit, each int) ([]HostClaim, error) {
	return all(ctx, q.q, scanClaim, `SELECT `+claimFields+` FROM (
		SELECT `+claimFields+`, ROW_NUMBER() OVER (PARTITION BY agent_id ORDER BY next_at, host) AS turn
		FROM host_claims WHERE next_at <= $1 AND `+ofLiveAgents+`) AS due
		WHERE turn <= $2 ORDER BY next_at, agent_id, host LIMIT $3`, micros(now), each, limit)
}

// PutClaim inserts or changes a claim, and with it the revision of the agent's routes.
func (t *Tx) PutClaim(ctx context.Context, c HostClaim) error {
	_, err := t.exec(ctx, `INSERT INTO host_claims (`+claimColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (agent_id, host) DO UPDATE SET proof = excluded.proof, proven_at = excluded.proven_at, checked_at = excluded.checked_at,
			lost_at = excluded.lost_at, next_at = excluded.next_at, reason = excluded.reason`,
		c.AgentID, c.Host, c.Proof, micros(c.ClaimedAt), micros(c.ProvenAt), micros(c.CheckedAt), micros(c.LostAt), micros(c.NextAt), c.Reason)
	if err != nil {
		return err
	}
	return t.claimsChanged(ctx, c.AgentID)
}

// HostMode is how a gateway reaches a host of an agent.
type HostMode struct{ AgentID, Host, Mode, Reason string }

// PutHostModes notes how hosts are reached. It changes no revision: what is served stays the same.
func (s *Store) PutHostModes(ctx context.Context, modes []HostMode) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		for _, m := range modes {
			if _, err := tx.exec(ctx, `UPDATE host_claims SET mode = $1, mode_reason = $2 WHERE agent_id = $3 AND host = $4`,
				m.Mode, m.Reason, m.AgentID, m.Host); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetHostModes forgets how hosts are reached.
func (s *Store) ForgetHostModes(ctx context.Context) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `UPDATE host_claims SET mode = '', mode_reason = '' WHERE mode <> ''`)
		return err
	})
}

// DeleteClaim removes a claim.
func (t *Tx) DeleteClaim(ctx context.Context, agentID, host string) error {
	if _, err := t.exec(ctx, `DELETE FROM host_claims WHERE agent_id = $1 AND host = $2`, agentID, host); err != nil {
		return err
	}
	return t.claimsChanged(ctx, agentID)
}

func (t *Tx) claimsChanged(ctx context.Context, agentID string) error {
	_, err := t.exec(ctx, `UPDATE route_sets SET revision = revision + 1 WHERE agent_id = $1`, agentID)
	return err
}

// HostGrant is a host that the operator gave to an agent.
type HostGrant struct {
	Host      string    `json:"host"`
	AgentID   string    `json:"agentId"`
	GrantedAt time.Time `json:"grantedAt"`
}

func scanGrant(row scanner, g *HostGrant) error {
	return row.Scan(&g.Host, &g.AgentID, moment{&g.GrantedAt})
}

// HostGrants lists the hosts that the operator gave to agents.
func (q hostTable) HostGrants(ctx context.Context) ([]HostGrant, error) {
	return all(ctx, q.q, scanGrant, `SELECT host, agent_id, granted_at FROM host_grants ORDER BY host`)
}

// GrantOf returns the agent that was given a host; empty for none.
func (q hostTable) GrantOf(ctx context.Context, host string) (string, error) {
	g, err := one(q.q.QueryRowContext(ctx, `SELECT host, agent_id, granted_at FROM host_grants WHERE host = $1`, host), scanGrant)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return g.AgentID, err
}

// PutGrant gives a host to an agent, and takes it from any other. All claims to the host are looked
// at again at once.
func (t *Tx) PutGrant(ctx context.Context, g HostGrant) error {
	_, err := t.exec(ctx, `INSERT INTO host_grants (host, agent_id, granted_at) VALUES ($1, $2, $3)
		ON CONFLICT (host) DO UPDATE SET agent_id = excluded.agent_id, granted_at = excluded.granted_at`, g.Host, g.AgentID, micros(g.GrantedAt))
	if err != nil {
		return err
	}
	return t.lookAtHost(ctx, g.Host)
}

// DeleteGrant takes a host back, and reports whether it had been given.
func (t *Tx) DeleteGrant(ctx context.Context, host string) (bool, error) {
	done, err := t.exec(ctx, `DELETE FROM host_grants WHERE host = $1`, host)
	if err != nil {
		return false, err
	}
	if done == 0 {
		return false, nil
	}
	return true, t.lookAtHost(ctx, host)
}

func (t *Tx) lookAtHost(ctx context.Context, host string) error {
	_, err := t.exec(ctx, `UPDATE host_claims SET next_at = 0 WHERE host = $1`, host)
	return err
}
