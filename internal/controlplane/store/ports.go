package store

import (
	"cmp"
	"context"
	"time"
)

// PortClaim is a public port that an agent wants for an App.
type PortClaim struct {
	AgentID, Namespace, App string
	// Protocol is TCP or UDP, and Port the one of the App's Service.
	Protocol string
	Port     int
	// Host is the App's below the gateway's domain.
	Host string
	// Wanted is the public port that the App names; 0 leaves the choice to the control plane, which
	// has Chosen it. That is 0 while none is free.
	Wanted, Chosen int
	// ClaimedAt is when the agent first named it.
	ClaimedAt time.Time
}

// Public returns the public port; 0 if there is none.
func (c PortClaim) Public() int { return cmp.Or(c.Wanted, c.Chosen) }

const portColumns = `agent_id, namespace, app, protocol, port, host, wanted, chosen, claimed_at`

func scanPort(row scanner, c *PortClaim) error {
	return row.Scan(&c.AgentID, &c.Namespace, &c.App, &c.Protocol, &c.Port, &c.Host, &c.Wanted, &c.Chosen, moment{&c.ClaimedAt})
}

// portTable has the statements about public ports.
type portTable struct{ table }

// PortClaims lists the claims of all agents that are not revoked, the oldest first.
func (q portTable) PortClaims(ctx context.Context) ([]PortClaim, error) {
	return all(ctx, q.q, scanPort, `SELECT `+portColumns+` FROM port_claims WHERE `+ofLiveAgents+`
		ORDER BY claimed_at, agent_id, namespace, app, port, protocol`)
}

// PutPortClaims replaces the claims of an agent, and changes the revision of its routes.
func (t *Tx) PutPortClaims(ctx context.Context, agentID string, claims []PortClaim) error {
	if _, err := t.exec(ctx, `DELETE FROM port_claims WHERE agent_id = $1`, agentID); err != nil {
		return err
	}
	for _, c := range claims {
		_, err := t.exec(ctx, `INSERT INTO port_claims (`+portColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			agentID, c.Namespace, c.App, c.Protocol, c.Port, c.Host, c.Wanted, c.Chosen, micros(c.ClaimedAt))
		if err != nil {
			return err
		}
	}
	return t.claimsChanged(ctx, agentID)
}

// ChoosePort records the port that was chosen for a claim.
func (t *Tx) ChoosePort(ctx context.Context, c PortClaim) error {
	_, err := t.exec(ctx, `UPDATE port_claims SET chosen = $1 WHERE agent_id = $2 AND namespace = $3 AND app = $4 AND protocol = $5 AND port = $6`,
		c.Chosen, c.AgentID, c.Namespace, c.App, c.Protocol, c.Port)
	if err != nil {
		return err
	}
	return t.claimsChanged(ctx, c.AgentID)
}
