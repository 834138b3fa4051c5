package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Agent is a stored agent.
type Agent struct {
	ID         string
	Name       string
	ClusterUID string
	Labels     map[string]string
	State      announce.State

	// Key is the fingerprint of the public key that was certified last, PreviousKey
	// of the one before: the answer with the new certificate may have been lost.
	Key, PreviousKey string
	TokenID          string

	AgentVersion, RunnerAPIVersion            string
	KubernetesVersion, Distribution, Provider string
	Capacity                                  announce.Capacity
	// Update is nil for an agent that does not update itself.
	Update *announce.AgentUpdate

	Components []announce.Component

	// Checks is what the agent's own checks found last; nil before the first.
	Checks *Checks

	// Clones are those that were seen with the agent's identity and are not it.
	Clones []announce.Clone

	// EdgeAddress is the address that was announced to Runners.
	EdgeAddress string
	// Sequence is that of the last event in the outbox.
	Sequence                          uint64
	RegisteredAt, LastSeen, RevokedAt time.Time
}

// Revoked reports whether the agent may not come back.
func (a *Agent) Revoked() bool { return !a.RevokedAt.IsZero() }

const agentColumns = `id, name, cluster_uid, labels, state, key_print, previous_key_print, token_id,
	agent_version, runner_api_version, kubernetes_version, distribution, provider, capacity,
	edge_address, sequence, registered_at, last_seen, revoked_at, self_update, components`

// agentSelect has what SetClones and SetChecks alone write as well.
const agentSelect = agentColumns + `, clones, checks`

func scanAgent(row scanner, a *Agent) error {
	return row.Scan(&a.ID, &a.Name, &a.ClusterUID, document{&a.Labels}, &a.State, &a.Key, &a.PreviousKey, &a.TokenID,
		&a.AgentVersion, &a.RunnerAPIVersion, &a.KubernetesVersion, &a.Distribution, &a.Provider, document{&a.Capacity},
		&a.EdgeAddress, &a.Sequence, moment{&a.RegisteredAt}, moment{&a.LastSeen}, moment{&a.RevokedAt}, document{&a.Update},
		document{&a.Components}, document{&a.Clones}, document{&a.Checks})
}

// agentTable has the statements about agents.
type agentTable struct{ table }

// Agent finds an agent by its ID.
func (q agentTable) Agent(ctx context.Context, id string) (Agent, error) {
	return q.agentWhere(ctx, `id = $1`, id)
}

// AgentOfCluster finds the agent of a cluster.
func (q agentTable) AgentOfCluster(ctx context.Context, uid string) (Agent, error) {
	return q.agentWhere(ctx, `cluster_uid = $1`, uid)
}

// AgentNamed returns the agent with the name; a revoked one only if it is the only one.
func (q agentTable) AgentNamed(ctx context.Context, name string) (Agent, error) {
	return q.agentWhere(ctx, `name = $1 ORDER BY revoked_at LIMIT 1`, name)
}

func (q agentTable) agentWhere(ctx context.Context, where string, args ...any) (Agent, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+agentSelect+` FROM agents WHERE `+where, args...), scanAgent)
}

// Agents lists all agents by name, revoked ones included.
func (q agentTable) Agents(ctx context.Context) ([]Agent, error) {
	return all(ctx, q.q, scanAgent, `SELECT `+agentSelect+` FROM agents ORDER BY name, id`)
}

// RevokedAgents returns the IDs of the agents that were revoked last, newest first.
func (q agentTable) RevokedAgents(ctx context.Context, limit int) ([]string, error) {
	return all(ctx, q.q, func(row scanner, id *string) error { return row.Scan(id) },
		`SELECT id FROM agents WHERE revoked_at <> 0 ORDER BY revoked_at DESC, id LIMIT $1`, limit)
}

// AgentStates counts the agents by state; those that may not come back count as revoked.
func (q agentTable) AgentStates(ctx context.Context) (map[announce.State]int, error) {
	type count struct {
		state announce.State
		n     int
	}
	list, err := all(ctx, q.q, func(row scanner, c *count) error { return row.Scan(&c.state, &c.n) },
		`SELECT CASE WHEN revoked_at <> 0 THEN 'revoked' ELSE state END AS what, COUNT(*) FROM agents GROUP BY what`)
	states := map[announce.State]int{}
	for _, c := range list {
		states[c.state] = c.n
	}
	return states, err
}

// InsertAgent adds an agent.
func (q agentTable) InsertAgent(ctx context.Context, a Agent) error {
	_, err := q.exec(ctx, `INSERT INTO agents (`+agentColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)`,
		a.ID, a.Name, a.ClusterUID, asJSON(a.Labels), a.State, a.Key, a.PreviousKey, a.TokenID,
		a.AgentVersion, a.RunnerAPIVersion, a.KubernetesVersion, a.Distribution, a.Provider, asJSON(a.Capacity),
		a.EdgeAddress, a.Sequence, micros(a.RegisteredAt), micros(a.LastSeen), micros(a.RevokedAt), asJSON(a.Update), asJSON(a.Components))
	return err
}

// UpdateAgent writes everything but the ID, the cluster and the sequence.
func (q agentTable) UpdateAgent(ctx context.Context, a Agent) error {
	return q.execOne(ctx, `UPDATE agents SET name = $1, labels = $2, state = $3, key_print = $4, previous_key_print = $5,
		token_id = $6, agent_version = $7, runner_api_version = $8, kubernetes_version = $9, distribution = $10,
		provider = $11, capacity = $12, edge_address = $13, registered_at = $14, last_seen = $15, revoked_at = $16, self_update = $17,
		components = $18 WHERE id = $19`,
		a.Name, asJSON(a.Labels), a.State, a.Key, a.PreviousKey, a.TokenID, a.AgentVersion, a.RunnerAPIVersion,
		a.KubernetesVersion, a.Distribution, a.Provider, asJSON(a.Capacity), a.EdgeAddress,
		micros(a.RegisteredAt), micros(a.LastSeen), micros(a.RevokedAt), asJSON(a.Update), asJSON(a.Components), a.ID)
}

// SetClones writes the other holders of the agent's identity.
func (q agentTable) SetClones(ctx context.Context, id string, clones []announce.Clone) error {
	return q.execOne(ctx, `UPDATE agents SET clones = $1 WHERE id = $2`, asJSON(clones), id)
}

// Checks is what an agent's own checks found.
type Checks struct {
	Findings []Finding `json:"findings" nullable:"false" doc:"What failed or is a warning, failures first; none if all is well."`
}

// Finding is a check of an agent that failed, or a warning of one.
type Finding struct {
	Check  string    `json:"check" doc:"As pipeops-agent doctor names it."`
	Status string    `json:"status" enum:"failed,warning"`
	Detail string    `json:"detail"`
	Fix    string    `json:"fix,omitempty"`
	Since  time.Time `json:"since" doc:"When the control plane first heard of it."`
}

// FailedChecks returns the names of the checks that failed, each once.
func (a *Agent) FailedChecks() (names []string) {
	if a.Checks == nil || a.Revoked() {
		return nil
	}
	for _, f := range a.Checks.Findings {
		if f.Status == "failed" && !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return names
}

// SetChecks writes what the agent's own checks found.
func (q agentTable) SetChecks(ctx context.Context, id string, checks *Checks) error {
	return q.execOne(ctx, `UPDATE agents SET checks = $1 WHERE id = $2`, asJSON(checks), id)
}

// Beat is what a heartbeat changes; a nil capacity is unknown and stays unchanged.
type Beat struct {
	AgentID  string
	At       time.Time
	Capacity *announce.Capacity
}

// SaveBeats writes many heartbeats, hundreds with one statement. Heartbeats that are older than the
// stored ones, and those of deleted agents, change nothing.
func (q agentTable) SaveBeats(ctx context.Context, beats []Beat) error {
	values := make([]any, 0, 3*len(beats))
	for _, b := range beats {
		var figures any
		if b.Capacity != nil {
			figures = asJSON(b.Capacity)
		}
		values = append(values, b.AgentID, micros(b.At), figures)
	}
	for part := range slices.Chunk(values, rowsAtATime*3) {
		// Both databases call the columns of VALUES so.
		_, err := q.exec(ctx, `UPDATE agents SET last_seen = beats.column2, capacity = COALESCE(beats.column3, capacity)
			FROM (VALUES `+rowsOf(len(part)/3, 3, 1, "CAST($%d AS TEXT), CAST($%d AS BIGINT), CAST($%d AS TEXT)")+`) AS beats
			WHERE agents.id = beats.column1 AND agents.last_seen < beats.column2`, part...)
		if err != nil {
			return err
		}
	}
	return nil
}

// DeleteAgent forgets an agent and its timeline.
func (q agentTable) DeleteAgent(ctx context.Context, id string) error {
	if _, err := q.exec(ctx, `DELETE FROM refreshes WHERE agent_id = $1`, id); err != nil {
		return err
	}
	return q.execOne(ctx, `DELETE FROM agents WHERE id = $1`, id)
}

// Position is an event's place among the events of its agent.
type Position struct {
	// Installation names the control plane's installation.
	Installation string
	// Sequence is the event's, and Previous that of the event before; 0 for none.
	Sequence, Previous uint64
}

// NextPosition returns the place of an agent's next event. The sequence is the time in milliseconds
// since 1970, or one more than the event before. A database that was restored from a backup
// therefore does not repeat numbers that Runners have seen.
func (t *Tx) NextPosition(ctx context.Context, agentID string, now time.Time) (Position, error) {
	var p Position
	err := t.q.QueryRowContext(ctx, `SELECT sequence, (SELECT value FROM settings WHERE name = $1) FROM agents WHERE id = $2`,
		settingInstallation, agentID).Scan(&p.Previous, &p.Installation)
	if err == nil {
		p.Sequence = max(p.Previous+1, uint64(max(0, now.UnixMilli()))) // #nosec G115 -- not negative
		_, err = t.exec(ctx, `UPDATE agents SET sequence = $1 WHERE id = $2`, p.Sequence, agentID)
	}
	if err != nil {
		return p, fmt.Errorf("database: sequence of agent %s: %w", agentID, err)
	}
	return p, nil
}

// AgentNames returns the names of the agents that are not revoked, by their IDs.
func (q agentTable) AgentNames(ctx context.Context) (map[string]string, error) {
	type row struct{ id, name string }
	list, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.id, &r.name) },
		`SELECT id, name FROM agents WHERE revoked_at = 0`)
	names := make(map[string]string, len(list))
	for _, r := range list {
		names[r.id] = r.name
	}
	return names, err
}
