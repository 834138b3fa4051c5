// Package gateway is the agent's end of public traffic. It takes requests from the streams that the
// control plane's gateway opens, and passes each to the Service that the agent's own routes name
// for its host and path. Nothing that a request says can lead it anywhere else.
package gateway

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
)

// Route leads from a host and a path to a Service.
type Route struct {
	Host, Path string
	PathType   string // as in an Ingress
	// Pattern matches the whole path, in place of PathType. It is nil if Path is not a regular
	// expression.
	Pattern *regexp.Regexp
	// Conditions are what a request has to meet beside its host and path.
	Conditions Conditions
	// Addresses are those of the Service, host:port; none if it has none.
	Addresses []string
	// Backends are the Services of a route that has several, or one with a weight or filters, in
	// place of Addresses and HTTP2; nil for none.
	Backends []Backend
	// Filters change requests and responses; nil for none.
	Filters *Filters
	// Endpoint is the address of the cluster's own load balancer for the host; empty for none.
	Endpoint string
	// HTTP2 is set of a Service that declares HTTP/2 without TLS.
	HTTP2 bool
	// Within is how long a backend may take to begin its answer; zero is the default.
	Within time.Duration
	// Limited has Within hold for a backend that speaks HTTP/2, too.
	Limited bool
	// Visitors are whom the route lets in.
	Visitors Visitors
	// Created is when the route came to be: of two that are equal, the older one counts. Of two of
	// the same time, that with the first Name in the alphabet counts, and of one name that with the
	// lower Order.
	Created time.Time
	Name    string
	Order   int
	// Protocol is that of a public port, gatewaywire.TCP or UDP; empty for requests of HTTP. The
	// route is then for Host and Port alone: Port is the one of the Service.
	Protocol string
	Port     int32
	// Proxied has the Service get the header of the PROXY protocol, version 2.
	Proxied bool
	// Idle is how long a connection to the port may have nothing to say; zero is the default.
	Idle time.Duration

	// Namespace and App own the route. Requests of a route without an App are not counted.
	Namespace, App string
	// AccessLog is set of an App whose requests are logged.
	AccessLog bool

	guard  *guard             // nil if everyone is let in
	counts *traffic.Host      // nil if requests are not counted
	log    *traffic.AccessLog // nil if they are not logged
}

const exact = "Exact"

// isCounted reports whether the route's requests are: those of an App, other than connections to a
// public port.
func (r *Route) isCounted() bool { return r.App != "" && r.Protocol == "" }

// table finds routes.
type table map[string][]Route // by host, the best match first

// newTable makes a table of routes. What the routes of the table before it have counted goes on.
func newTable(routes []Route, before table) table {
	t := table{}
	for _, r := range routes {
		if r.Protocol != "" {
			continue
		}
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
	for i := range t[host] {
		had := &t[host][i]
		if had.Path == r.Path && had.PathType == r.PathType && had.guard.sameAs(r.Visitors) && had.Conditions.String() == r.Conditions.String() {
			return had.guard
		}
	}
	return newGuard(r.Visitors)
}

// compare orders the routes of a host as an Ingress and the Gateway API do: exact paths, then
// regular expressions, then prefixes. Longer ones come first, then those with more conditions.
func compare(a, b Route) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)), cmp.Compare(len(trimmed(b.Path)), len(trimmed(a.Path))),
		compareConditions(&a.Conditions, &b.Conditions),
		a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Order, b.Order),
	)
}

func rank(r Route) int {
	switch {
	case r.Pattern != nil:
		return 1
	case r.PathType == exact:
		return 0
	}
	return 2
}

func trimmed(path string) string { return strings.TrimSuffix(path, "/") }

// find returns the route of a request; nil if there is none. A wildcard covers one label, and an
// exact host comes before it.
func (t table) find(host, path string, by *asked) *Route {
	if r := match(t[host], path, by); r != nil {
		return r
	}
	return match(t[wildcardOf(host)], path, by)
}

// wildcardOf returns the wildcard that covers a host; empty for none.
func wildcardOf(host string) string {
	_, parent, ok := strings.Cut(host, ".")
	if !ok {
		return ""
	}
	return "*." + parent
}

func match(routes []Route, path string, by *asked) *Route {
	for i := range routes {
		if r := &routes[i]; r.covers(path) && by.meets(&r.Conditions) {
			return r
		}
	}
	return nil
}

// covers reports whether a path is the route's.
func (r *Route) covers(path string) bool {
	switch {
	case r.Pattern != nil:
		return r.Pattern.MatchString(path)
	case r.PathType == exact:
		return path == r.Path
	}
	return hasPrefix(path, r.Path)
}

// hasPrefix compares whole elements: /foo is a prefix of /foo/bar, and not of /foobar.
func hasPrefix(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, trimmed(prefix))
	return ok && (rest == "" || rest[0] == '/')
}
