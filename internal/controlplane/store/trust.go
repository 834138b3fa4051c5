package store

import "context"

// AgentTrust is an agent's progress in a rotation of the CA.
type AgentTrust struct {
	AgentID string
	// Bundle is the SHA-256 of the CAs that it trusts; empty if it did not report that.
	Bundle string
	// Issuer is the key ID of the CA that issued the certificate which it used last.
	Issuer string
}

func scanAgentTrust(row scanner, t *AgentTrust) error {
	return row.Scan(&t.AgentID, &t.Bundle, &t.Issuer)
}

const agentTrustSelect = `SELECT agent_id, bundle, issuer FROM agent_trust `

// trustTable has the statements about what agents and Runners have of a rotation.
type trustTable struct{ table }

// AgentTrust returns an agent's progress.
func (q trustTable) AgentTrust(ctx context.Context, agentID string) (AgentTrust, error) {
	return one(q.q.QueryRowContext(ctx, agentTrustSelect+`WHERE agent_id = $1`, agentID), scanAgentTrust)
}

// AgentTrusts returns the progress of each agent that has been heard.
func (q trustTable) AgentTrusts(ctx context.Context) ([]AgentTrust, error) {
	return all(ctx, q.q, scanAgentTrust, agentTrustSelect)
}

// PutAgentTrust stores an agent's progress. It does not write known values again, and ignores
// deleted agents.
func (q trustTable) PutAgentTrust(ctx context.Context, t AgentTrust) error {
	_, err := q.exec(ctx, `INSERT INTO agent_trust (agent_id, bundle, issuer) SELECT id, $1, $2 FROM agents WHERE id = $3
		ON CONFLICT (agent_id) DO UPDATE SET bundle = excluded.bundle, issuer = excluded.issuer
		WHERE agent_trust.bundle <> excluded.bundle OR agent_trust.issuer <> excluded.issuer`, t.Bundle, t.Issuer, t.AgentID)
	return err
}

// RunnerTrust is a Runner's progress in a rotation of the CA.
type RunnerTrust struct {
	Runner string
	// Serial and Key are those of its certificate.
	Serial, Key string
	// Issuer is the key ID of the CA that issued the one which it used last.
	Issuer string
}

const runnerTrustSelect = `SELECT runner, serial, key_print, issuer FROM runner_trust `

func scanRunnerTrust(row scanner, t *RunnerTrust) error {
	return row.Scan(&t.Runner, &t.Serial, &t.Key, &t.Issuer)
}

// RunnerTrust returns a Runner's progress.
func (q trustTable) RunnerTrust(ctx context.Context, runner string) (RunnerTrust, error) {
	return one(q.q.QueryRowContext(ctx, runnerTrustSelect+`WHERE runner = $1`, runner), scanRunnerTrust)
}

// RunnerTrusts returns the progress of each Runner.
func (q trustTable) RunnerTrusts(ctx context.Context) ([]RunnerTrust, error) {
	return all(ctx, q.q, scanRunnerTrust, runnerTrustSelect)
}

// PutRunnerTrust stores a Runner's progress.
func (q trustTable) PutRunnerTrust(ctx context.Context, t RunnerTrust) error {
	_, err := q.exec(ctx, `INSERT INTO runner_trust (runner, serial, key_print, issuer) VALUES ($1, $2, $3, $4)
		ON CONFLICT (runner) DO UPDATE SET serial = excluded.serial, key_print = excluded.key_print, issuer = excluded.issuer`,
		t.Runner, t.Serial, t.Key, t.Issuer)
	return err
}
