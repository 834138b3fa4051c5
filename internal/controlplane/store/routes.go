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
	// App is empty for a route of a chart, a set or a source.
	Namespace, App, Service string // Service has its namespace if that is another one
	Port                    int32
	Ready                   bool
	Reason                  string
	// Endpoint is the address of the cluster's load balancer for the host; empty for none.
	Endpoint string
	// Protocol is that of a public port, TLS of a host whose connections keep their TLS, and empty
	// for requests of HTTP. PublicPort is the one that the App names, 0 for any.
	Protocol   string
	PublicPort int
	// Since is when the App was first heard of at that host and path.
	Since time.Time
}

// Carried reports whether the route leads to a Service, or answers by itself, as a redirect does.
// One that does neither says why in its reason.
func (r *Route) Carried() bool { return r.Port != 0 || r.Ready }

// RouteSet describes all routes of an agent together.
type RouteSet struct {
	Digest  string
	Omitted int
	// At is when the agent was last heard with this set.
	At time.Time
	// Revision changes with the routes and with the agent's claims to hosts. PutRoutes sets it.
	Revision int64
}

const routeColumns = `agent_id, host, path, path_type, tls, namespace, app, service, port, ready, reason, endpoint, protocol, public_port, since`

func scanRoute(row scanner, r *Route) error {
	return row.Scan(&r.AgentID, &r.Host, &r.Path, &r.PathType, &r.TLS, &r.Namespace, &r.App, &r.Service, &r.Port, &r.Ready, &r.Reason, &r.Endpoint, &r.Protocol, &r.PublicPort, moment{&r.Since})
}

func scanRouteSet(row scanner, s *RouteSet) error {
	return row.Scan(&s.Digest, &s.Omitted, moment{&s.At}, &s.Revision)
}

// routeTable has the statements about the routes of agents.
type routeTable struct{ table }

// RouteSets returns the descriptions of the routes of all agents that are not revoked, by their
// IDs.
func (q routeTable) RouteSets(ctx context.Context) (map[string]RouteSet, error) {
	type row struct {
		agent string
		set   RouteSet
	}
	list, err := all(ctx, q.q, func(s scanner, r *row) error {
		return s.Scan(&r.agent, &r.set.Digest, &r.set.Omitted, moment{&r.set.At}, &r.set.Revision)
	}, `SELECT agent_id, digest, omitted, at, revision FROM route_sets
			WHERE agent_id IN (SELECT id FROM agents WHERE revoked_at = 0)`)
	sets := make(map[string]RouteSet, len(list))
	for _, r := range list {
		sets[r.agent] = r.set
	}
	return sets, err
}

// RouteSet returns the description of an agent's routes; the zero value if there is none.
func (q routeTable) RouteSet(ctx context.Context, agentID string) (RouteSet, error) {
	set, err := one(q.q.QueryRowContext(ctx, `SELECT digest, omitted, at, revision FROM route_sets WHERE agent_id = $1`, agentID), scanRouteSet)
	if errors.Is(err, ErrNotFound) {
		return RouteSet{}, nil
	}
	return set, err
}

// RoutesOf lists the routes of an agent.
func (q routeTable) RoutesOf(ctx context.Context, agentID string) ([]Route, error) {
	return all(ctx, q.q, scanRoute, `SELECT `+routeColumns+` FROM routes WHERE agent_id = $1 ORDER BY position`, agentID)
}

// Routes lists the routes of all agents that are not revoked.
func (q routeTable) Routes(ctx context.Context) ([]Route, error) {
	return all(ctx, q.q, scanRoute, `SELECT `+routeColumns+` FROM routes
		WHERE agent_id IN (SELECT id FROM agents WHERE revoked_at = 0) ORDER BY agent_id, position`)
}

// EndpointsOf returns the load balancer's address of each host of an agent that has one.
func (q routeTable) EndpointsOf(ctx context.Context, agentID string) (map[string]string, error) {
	type row struct{ host, endpoint string }
	list, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.host, &r.endpoint) },
		`SELECT host, MIN(endpoint) FROM routes WHERE agent_id = $1
			GROUP BY host HAVING MIN(endpoint) <> '' AND MIN(endpoint) = MAX(endpoint)`, agentID)
	endpoints := make(map[string]string, len(list))
	for _, r := range list {
		endpoints[r.host] = r.endpoint
	}
	return endpoints, err
}

// PassedOf returns the port of the Service of each host of an agent whose connections keep their
// TLS. A host that leads to several, or to requests of HTTP too, is not among them.
func (q routeTable) PassedOf(ctx context.Context, agentID string) (map[string]int32, error) {
	type row struct {
		host string
		port int32
	}
	list, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.host, &r.port) },
		`SELECT host, MIN(port) FROM routes WHERE agent_id = $1 AND protocol IN ('', 'TLS') AND (port <> 0 OR ready <> 0)
			GROUP BY host HAVING MIN(protocol) = 'TLS' AND MIN(port) = MAX(port)`, agentID)
	passed := make(map[string]int32, len(list))
	for _, r := range list {
		passed[r.host] = r.port
	}
	return passed, err
}

// HostsOf lists the first hosts of an agent by name, each once.
func (q routeTable) HostsOf(ctx context.Context, agentID string, limit int) ([]string, error) {
	return all(ctx, q.q, func(row scanner, host *string) error { return row.Scan(host) },
		`SELECT DISTINCT host FROM routes WHERE agent_id = $1 AND protocol IN ('', 'TLS') ORDER BY host LIMIT $2`, agentID, limit)
}

// Hosts lists the first hosts of each agent by name, by the agents' IDs.
func (q routeTable) Hosts(ctx context.Context, limit int) (map[string][]string, error) {
	type row struct{ agent, host string }
	list, err := all(ctx, q.q, func(s scanner, r *row) error { return s.Scan(&r.agent, &r.host) },
		`SELECT DISTINCT agent_id, host FROM routes WHERE protocol IN ('', 'TLS') ORDER BY agent_id, host`)
	hosts := map[string][]string{}
	for _, r := range list {
		if len(hosts[r.agent]) < limit {
			hosts[r.agent] = append(hosts[r.agent], r.host)
		}
	}
	return hosts, err
}

// PutRoutes replaces an agent's routes.
func (t *Tx) PutRoutes(ctx context.Context, agentID string, routes []Route, set RouteSet) error {
	if _, err := t.exec(ctx, `DELETE FROM routes WHERE agent_id = $1`, agentID); err != nil {
		return err
	}
	for i, r := range routes {
		_, err := t.exec(ctx, `INSERT INTO routes (position, `+routeColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
			i, agentID, r.Host, r.Path, r.PathType, truth(r.TLS), r.Namespace, r.App, r.Service, r.Port, truth(r.Ready), r.Reason, r.Endpoint, r.Protocol, r.PublicPort, micros(r.Since))
		if err != nil {
			return err
		}
	}
	if _, err := t.exec(ctx, `UPDATE host_claims SET mode = '', mode_reason = '' WHERE agent_id = $1 AND mode <> ''
		AND host NOT IN (SELECT host FROM routes WHERE agent_id = $1 AND endpoint <> '')`, agentID); err != nil {
		return err
	}
	_, err := t.exec(ctx, `INSERT INTO route_sets (agent_id, digest, omitted, at, revision) VALUES ($1, $2, $3, $4, 1)
		ON CONFLICT (agent_id) DO UPDATE SET digest = excluded.digest, omitted = excluded.omitted, at = excluded.at,
			revision = route_sets.revision + 1`,
		agentID, set.Digest, set.Omitted, micros(set.At))
	return err
}

// HeardRoutes notes that an agent was heard with the routes that are known of it.
func (t *Tx) HeardRoutes(ctx context.Context, agentID string, at time.Time) error {
	_, err := t.exec(ctx, `UPDATE route_sets SET at = $1 WHERE agent_id = $2`, micros(at), agentID)
	return err
}

// truth returns how a bool is kept: not all databases have one.
func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
