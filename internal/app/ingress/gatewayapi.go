package ingress

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// gatewayAPI is what a Router does with the kinds of the Gateway API.
type gatewayAPI struct {
	*Router
	httpRoutes, grants, gateways, classes *appcache.Optional

	patterns patterns
	due      wake.Signal // a look at the status of Gateways
}

func newGatewayAPI(of *Router, from appcache.Sources) *gatewayAPI {
	t := &gatewayAPI{Router: of, due: wake.New()}
	t.httpRoutes = appcache.NewOptional(appcache.HTTPRouteKind, labels.SelectorFromSet(objectmeta.Labels()), from, t.routed, t.log)
	t.grants = appcache.NewOptional(appcache.ReferenceGrantKind, nil, from, t.routed, t.log)
	t.gateways = appcache.NewOptional(appcache.GatewayKind, nil, from, t.routed, t.log)
	t.classes = appcache.NewOptional(appcache.GatewayClassKind, nil, from, t.routed, t.log)
	return t
}

// LookAtGateways has the leader look at the status of Gateways and HTTPRoutes soon.
func (t *Router) LookAtGateways() { t.api.due.Raise() }

// WatchGatewayAPI watches the kinds of the Gateway API until the context ends, while the cluster
// has them, and writes the status of what is ours.
func (t *Router) WatchGatewayAPI(ctx context.Context) error {
	var group errgroup.Group
	for _, kind := range t.api.optional() {
		group.Go(func() error { return kind.Run(ctx) })
	}
	group.Go(func() error { return t.api.keepStatus(ctx) })
	return group.Wait()
}

func (t *gatewayAPI) optional() []*appcache.Optional {
	return []*appcache.Optional{t.httpRoutes, t.grants, t.gateways, t.classes}
}

// known reports whether all is read that leads to routes. An agent that has just started would
// withdraw routes otherwise.
func (t *Router) known() bool {
	return t.store.Ready() && !slices.ContainsFunc(t.api.optional(), func(o *appcache.Optional) bool { return !o.Known() })
}

// routes returns the routes of all HTTPRoutes with the agent's label.
func (t *gatewayAPI) routes(ctx context.Context) (routes []Route, err error) {
	list, err := t.httpRoutes.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list HTTPRoutes: %w", err)
	}
	grants, err := t.grants.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list ReferenceGrants: %w", err)
	}
	gateways, err := t.parents(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		h := &list[i]
		if h.GetDeletionTimestamp().IsZero() && t.store.Scope.Covers(h.GetNamespace()) {
			hosts, refused := gateways.servedAt(h)
			routes = append(routes, t.routesOfHTTPRoute(ctx, h, hosts, refused, grants)...)
		}
	}
	return routes, nil
}

// routesOfHTTPRoute returns the routes of an HTTPRoute at some hosts. With a reason to refuse it,
// nothing of it is served.
func (t *gatewayAPI) routesOfHTTPRoute(ctx context.Context, h *unstructured.Unstructured, hosts []string, refused string, grants []unstructured.Unstructured) (routes []Route) {
	matches, reason := matchesOf(h, t.patterns.compile)
	reason = cmp.Or(printable.Shorten(refused, maxReason), reason)
	wants := runnerapi.ReadRouteAnnotations(h.GetAnnotations())
	var rule *httpRule
	var of Route // of the rule
	for i, m := range matches {
		if reason == "" && m.rule != rule {
			rule, of = m.rule, t.routeOfRule(ctx, h.GetNamespace(), m.rule, grants)
		}
		route := of
		route.App, route.Path, route.PathType, route.Pattern = runnerapi.Key{Namespace: h.GetNamespace()}, m.path, m.pathType, m.pattern
		route.Conditions, route.Reason, route.Refused = m.conditions, cmp.Or(reason, of.Reason), refused != ""
		route.Created, route.Name, route.Order = h.GetCreationTimestamp().Time, h.GetNamespace()+"/"+h.GetName(), i
		route.Warnings = slices.Concat(wants.Warnings, of.Warnings)
		if route.Within, route.Limited = wants.Within, false; m.rule.within > 0 {
			route.Within, route.Limited = m.rule.within, true
		}
		if reason == "" {
			t.demand(ctx, &route, wants.Visitors, wants.Unmet)
		}
		for _, host := range hosts {
			route.Host = host
			routes = append(routes, route)
		}
	}
	return routes
}

// routeOfRule returns where a rule leads, and what it changes on the way. Of several backends the
// route shows the one with the largest weight.
func (t *gatewayAPI) routeOfRule(ctx context.Context, namespace string, rule *httpRule, grants []unstructured.Unstructured) (r Route) {
	r.Ready, r.FilterTypes = true, rule.types
	r.Filters = t.filtersOf(ctx, namespace, rule, grants, &r)
	if rule.redirects() {
		return r
	}
	r.Backends = []gateway.Backend{}
	total, shown := 0, -1
	for _, b := range rule.backends {
		to := destination{missing: invalidKind, reason: b.missing}
		if b.missing == "" {
			to = t.httpBackend(ctx, namespace, b.to, grants)
		}
		if to.missing != "" && r.unresolved == "" {
			r.unresolved, r.unresolvedWhy = to.missing, to.reason
		}
		if total += b.weight; b.weight > 0 {
			r.Reason = cmp.Or(r.Reason, to.reason)
		}
		if b.missing == "" {
			if b.weight > shown {
				shown, r.Service, r.Port = b.weight, b.to.text(namespace), b.to.port
			}
			r.Shares = append(r.Shares, runnerapi.RouteShare{Service: b.to.text(namespace), Port: b.to.port, Weight: int32(b.weight)}) //nolint:gosec // up to a million
		}
		r.Backends = append(r.Backends, gateway.Backend{Addresses: to.addresses, HTTP2: to.http2, Weight: b.weight, Missing: to.missing != "", Filters: b.filters})
	}
	if total == 0 {
		r.Reason = "it leads to no Service; add a backend with a weight"
	}
	r.Ready = r.Reason == ""
	if len(r.Backends) == 1 && total > 0 && !r.Backends[0].Missing && r.Backends[0].Filters == nil {
		r.Addresses, r.HTTP2, r.Backends, r.Shares = r.Backends[0].Addresses, r.Backends[0].HTTP2, nil, nil
	}
	if len(rule.backends) == 1 {
		r.Shares = nil
	}
	return r
}

// filtersOf returns the filters of a rule. A mirror that cannot be reached is left out: visitors do
// not see what it answers.
func (t *gatewayAPI) filtersOf(ctx context.Context, namespace string, rule *httpRule, grants []unstructured.Unstructured, r *Route) *gateway.Filters {
	if len(rule.mirrors) == 0 {
		return rule.filters
	}
	f := *rule.filters
	for _, m := range rule.mirrors {
		to := t.httpBackend(ctx, namespace, m.to, grants)
		if to.reason != "" {
			r.Warnings = append(r.Warnings, "requests are not mirrored: "+to.reason)
			r.unresolved, r.unresolvedWhy = to.missing, to.reason
			continue
		}
		f.Mirrors = append(f.Mirrors, gateway.Mirror{Addresses: to.addresses, HTTP2: to.http2, Share: m.share, Of: m.of})
	}
	return &f
}

// text returns a Service as the routes of a namespace show it.
func (b backendRef) text(namespace string) string {
	if b.namespace == namespace {
		return b.name
	}
	return b.namespace + "/" + b.name
}

// httpBackend finds the Service that an HTTPRoute leads to. In another namespace its owner has to
// allow that.
func (t *gatewayAPI) httpBackend(ctx context.Context, from string, to backendRef, grants []unstructured.Unstructured) destination {
	switch {
	case to.namespace == from:
	case !t.store.Scope.Covers(to.namespace):
		return destination{missing: notPermitted, reason: "the agent does not manage the namespace " + to.namespace}
	case !granted(grants, from, to):
		return destination{missing: notPermitted, reason: "no ReferenceGrant in " + to.namespace + " lets HTTPRoutes of " + from + " lead to the Service " + to.name}
	}
	return t.backend(ctx, to.namespace, &networkingv1.IngressServiceBackend{Name: to.name, Port: networkingv1.ServiceBackendPort{Number: to.port}})
}
