package ingress

import (
	"cmp"
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// passedRoute adds the route of an App to a host whose connections reach it with their TLS.
func (t *Router) passedRoute(ctx context.Context, routes []Route, a *v1alpha1.App, h runnerapi.IngressHost) []Route {
	route, leads := t.hostRoute(ctx, a, h)
	if !leads {
		return routes
	}
	route.Protocol, route.HTTP2 = gatewaywire.TLS, false
	v, unmet := portDemands(a, runnerapi.IngressPort{})
	t.demand(ctx, &route, v, unmet)
	return append(routes, route)
}

// Why a host is not carried in a second way. They do not name the other App, which may be of
// others.
const (
	passedElsewhere = "connections to the host reach another App, or another port, with their TLS; use another host"
	notPassed       = "the host has routes of HTTP, and connections cannot be passed on with their TLS beside them; leave out passthrough, or use another host" //nolint:gosec // no password
)

// wayOf returns how a route has its host carried: as requests of HTTP, or as connections to a port
// of an App. It is the same for all routes that a host may have at once.
func wayOf(r *Route) Route {
	if r.Protocol == "" {
		return Route{Host: r.Host}
	}
	return Route{Host: r.Host, App: r.App, Protocol: r.Protocol, Port: r.Port}
}

// oneWay refuses the routes of a host that has others, which are older, of another way.
func oneWay(routes []Route) []Route {
	if !slices.ContainsFunc(routes, func(r Route) bool { return r.Protocol == gatewaywire.TLS }) {
		return routes
	}
	first := map[string]*Route{}
	for i := range routes {
		r := &routes[i]
		if r.Refused || gatewaywire.IsPort(r.Protocol) {
			continue
		}
		if had := first[r.Host]; had == nil || older(r, had) < 0 {
			first[r.Host] = r
		}
	}
	out := slices.Clone(routes)
	for i := range out {
		r := &routes[i]
		had := first[r.Host]
		if r.Refused || gatewaywire.IsPort(r.Protocol) || compareRoutes(wayOf(had), wayOf(r)) == 0 {
			continue
		}
		reason := passedElsewhere
		if had.Protocol == "" {
			reason = notPassed
		}
		out[i] = r.refuse(reason)
	}
	return out
}

// older compares routes by their age. Of two of one age, that of HTTP comes first: it is the usual
// one.
func older(a, b *Route) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Protocol, b.Protocol), compareRoutes(*a, *b))
}
