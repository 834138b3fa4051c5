package store

import "context"

// ServedHosts returns the agents of the hosts that were announced as served, by host.
func (q queries) ServedHosts(ctx context.Context) (map[string]string, error) {
	type row struct{ host, agentID string }
	rows, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.host, &r.agentID) }, `SELECT host, agent_id FROM served_hosts`)
	if err != nil {
		return nil, err
	}
	served := make(map[string]string, len(rows))
	for _, r := range rows {
		served[r.host] = r.agentID
	}
	return served, nil
}

// SetServedHost records from which agent a host was announced as served; empty for none.
func (t *Tx) SetServedHost(ctx context.Context, host, agentID string) error {
	if agentID == "" {
		_, err := t.exec(ctx, `DELETE FROM served_hosts WHERE host = $1`, host)
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO served_hosts (host, agent_id) VALUES ($1, $2)
		ON CONFLICT (host) DO UPDATE SET agent_id = excluded.agent_id`, host, agentID)
	return err
}
