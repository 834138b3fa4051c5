// Package gateway is the agent's end of public traffic. It takes requests from the streams that the
// control plane's gateway opens, and passes each to the Service that the agent's own routes name
// for its host and path. Nothing that a request says can lead it anywhere else.
package gateway

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Route leads from a host and a path to a Service.
type Route struct {
	Host, Path string
	PathType   string // as in an Ingress
	// Addresses are those of the Service, host:port; none if it has none.
	Addresses []string
	// Endpoint is the address of the cluster's own load balancer for the host; empty for none.
	Endpoint string
	// HTTP2 is set of a Service that declares HTTP/2 without TLS.
	HTTP2 bool
	// Within is how long a backend may take to begin its answer; zero is the default.
	Within time.Duration
	// Visitors are whom the route lets in.
	Visitors Visitors
	// Created is when the route came to be: of two that are equal, the older one counts.
	Created time.Time

	guard *guard // nil if everyone is let in
}

const exact = "Exact"

// table finds routes.
type table map[string][]Route // by host, the best match first

// newTable makes a table of routes. What the routes of the table before it have counted goes on.
func newTable(routes []Route, before table) table {
	t := table{}
	for _, r := range routes {
		host := strings.ToLower(r.Host)
		r.guard = before.guardOf(host, r)
		t[host] = append(t[host], r)
	}
	for _, of := range t {
		slices.SortStableFunc(of, compare)
	}
	return t
}

// guardOf returns the guard of a route, which may be there already.
func (t table) guardOf(host string, r Route) *guard {
	for _, had := range t[host] {
		if had.Path == r.Path && had.PathType == r.PathType && had.guard.sameAs(r.Visitors) {
			return had.guard
		}
	}
	return newGuard(r.Visitors)
}

// compare orders the routes of a host as an Ingress does: longer paths first, and of equal ones the
// exact.
func compare(a, b Route) int {
	return cmp.Or(cmp.Compare(len(trimmed(b.Path)), len(trimmed(a.Path))), cmp.Compare(rank(a), rank(b)), a.Created.Compare(b.Created))
}

func rank(r Route) int {
	if r.PathType == exact {
		return 0
	}
	return 1
}

func trimmed(path string) string { return strings.TrimSuffix(path, "/") }

// find returns the route of a request. A wildcard covers one label, and an exact host comes before
// it.
func (t table) find(host, path string) (Route, bool) {
	if r, ok := match(t[host], path); ok {
		return r, true
	}
	return match(t[wildcardOf(host)], path)
}

// wildcardOf returns the wildcard that covers a host; empty for none.
func wildcardOf(host string) string {
	_, parent, ok := strings.Cut(host, ".")
	if !ok {
		return ""
	}
	return "*." + parent
}

func match(routes []Route, path string) (Route, bool) {
	for _, r := range routes {
		if r.PathType == exact && path == r.Path || r.PathType != exact && hasPrefix(path, r.Path) {
			return r, true
		}
	}
	return Route{}, false
}

// hasPrefix compares whole elements: /foo is a prefix of /foo/bar, and not of /foobar.
func hasPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, trimmed(prefix))
	return ok && (rest == "" || rest[0] == '/')
}
