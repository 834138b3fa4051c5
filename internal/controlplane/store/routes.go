package store

import (
	"context"
	"errors"
	"time"
)

// Route is a public host, or a path of it, of an agent's App.
type Route struct {
	AgentID              string
	Host, Path, PathType string
	TLS                  bool
	Namespace, App       string
	Port                 int32
	Ready                bool
	Reason               string
	// Since is when the App was first heard of at that host and path.
	Since time.Time
}

// RouteSet describes all routes of an agent together.
type RouteSet struct {
	Digest  string
	Omitted int
	At      time.Time
}

const routeColumns = `agent_id, host, path, path_type, tls, namespace, app, port, ready, reason, since`

func scanRoute(row scanner, r *Route) error {
	return row.Scan(&r.AgentID, &r.Host, &r.Path, &r.PathType, &r.TLS, &r.Namespace, &r.App, &r.Port, &r.Ready, &r.Reason, moment{&r.Since})
}

// RouteSet returns the description of an agent's routes; the zero value if there is none.
func (q queries) RouteSet(ctx context.Context, agentID string) (RouteSet, error) {
	set, err := one(q.q.QueryRowContext(ctx, `SELECT digest, omitted, at FROM route_sets WHERE agent_id = $1`, agentID),
		func(row scanner, s *RouteSet) error { return row.Scan(&s.Digest, &s.Omitted, moment{&s.At}) })
	if errors.Is(err, ErrNotFound) {
		return RouteSet{}, nil
	}
	return set, err
}

// RoutesOf lists the routes of an agent.
func (q queries) RoutesOf(ctx context.Context, agentID string) ([]Route, error) {
	return all(ctx, q.q, scanRoute, `SELECT `+routeColumns+` FROM routes WHERE agent_id = $1 ORDER BY position`, agentID)
}

// Routes lists the routes of all agents that are not revoked.
func (q queries) Routes(ctx context.Context) ([]Route, error) {
	return all(ctx, q.q, scanRoute, `SELECT `+routeColumns+` FROM routes
		WHERE agent_id IN (SELECT id FROM agents WHERE revoked_at = 0) ORDER BY agent_id, position`)
}

// HostsOf lists the first hosts of an agent by name, each once.
func (q queries) HostsOf(ctx context.Context, agentID string, limit int) ([]string, error) {
	return all(ctx, q.q, func(row scanner, host *string) error { return row.Scan(host) },
		`SELECT DISTINCT host FROM routes WHERE agent_id = $1 ORDER BY host LIMIT $2`, agentID, limit)
}

// Hosts lists the first hosts of each agent by name, by the agents' IDs.
func (q queries) Hosts(ctx context.Context, limit int) (map[string][]string, error) {
	type row struct{ agent, host string }
	list, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.agent, &r.host) },
		`SELECT DISTINCT agent_id, host FROM routes ORDER BY agent_id, host`)
	hosts := map[string][]string{}
	for _, r := range list {
		if len(hosts[r.agent]) < limit {
			hosts[r.agent] = append(hosts[r.agent], r.host)
		}
	}
	return hosts, err
}

// OmittedRoutes returns, for each agent with more routes than may be sent, the number of the
// others. It leaves out revoked agents.
func (q queries) OmittedRoutes(ctx context.Context) (map[string]int, error) {
	type count struct {
		agent string
		n     int
	}
	list, err := all(ctx, q.q, func(row scanner, c *count) error { return row.Scan(&c.agent, &c.n) },
		`SELECT agent_id, omitted FROM route_sets
			WHERE omitted > 0 AND agent_id IN (SELECT id FROM agents WHERE revoked_at = 0)`)
	omitted := make(map[string]int, len(list))
	for _, c := range list {
		omitted[c.agent] = c.n
	}
	return omitted, err
}

// PutRoutes replaces an agent's routes.
func (t *Tx) PutRoutes(ctx context.Context, agentID string, routes []Route, set RouteSet) error {
	if _, err := t.exec(ctx, `DELETE FROM routes WHERE agent_id = $1`, agentID); err != nil {
		return err
	}
	for i, r := range routes {
		_, err := t.exec(ctx, `INSERT INTO routes (position, `+routeColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			i, agentID, r.Host, r.Path, r.PathType, truth(r.TLS), r.Namespace, r.App, r.Port, truth(r.Ready), r.Reason, micros(r.Since))
		if err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, `INSERT INTO route_sets (agent_id, digest, omitted, at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (agent_id) DO UPDATE SET digest = excluded.digest, omitted = excluded.omitted, at = excluded.at`,
		agentID, set.Digest, set.Omitted, micros(set.At))
	return err
}

// truth returns how a bool is kept: not all databases have one.
func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
