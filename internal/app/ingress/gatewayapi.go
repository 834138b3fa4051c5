package ingress

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// readGatewayAPI makes the caches of the kinds of the Gateway API.
func (t *Router) readGatewayAPI(from appcache.Sources) {
	t.httpRoutes = appcache.NewOptional(appcache.HTTPRouteKind, labels.SelectorFromSet(objectmeta.Labels()), from, t.routed, t.log)
	t.grants = appcache.NewOptional(appcache.ReferenceGrantKind, nil, from, t.routed, t.log)
}

// WatchGatewayAPI watches the kinds of the Gateway API until the context ends, while the cluster
// has them.
func (t *Router) WatchGatewayAPI(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return t.httpRoutes.Run(ctx) })
	group.Go(func() error { return t.grants.Run(ctx) })
	return group.Wait()
}

// known reports whether all is read that leads to routes. An agent that has just started would
// withdraw routes otherwise.
func (t *Router) known() bool { return t.store.Ready() && t.httpRoutes.Known() && t.grants.Known() }

// routesOfHTTPRoutes returns the routes of all HTTPRoutes with the agent's label.
func (t *Router) routesOfHTTPRoutes(ctx context.Context) (routes []Route, err error) {
	list, err := t.httpRoutes.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list HTTPRoutes: %w", err)
	}
	grants, err := t.grants.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list ReferenceGrants: %w", err)
	}
	for i := range list {
		h := &list[i]
		if h.GetDeletionTimestamp().IsZero() && t.store.Scope.Covers(h.GetNamespace()) {
			routes = append(routes, t.routesOfHTTPRoute(ctx, h, grants)...)
		}
	}
	return routes, nil
}

func (t *Router) routesOfHTTPRoute(ctx context.Context, h *unstructured.Unstructured, grants []unstructured.Unstructured) (routes []Route) {
	matches, reason := matchesOf(h, t.patterns.compile)
	wants := runnerapi.ReadRouteAnnotations(h.GetAnnotations())
	for i, m := range matches {
		route := Route{
			App: runnerapi.Key{Namespace: h.GetNamespace()}, Path: m.path, PathType: m.pathType, Pattern: m.pattern, Conditions: m.conditions,
			Reason: reason, Created: h.GetCreationTimestamp().Time, Name: h.GetNamespace() + "/" + h.GetName(), Order: i,
			Within: wants.Within, Warnings: wants.Warnings,
		}
		if reason == "" {
			to := t.httpBackend(ctx, h.GetNamespace(), m.rule.to, grants)
			route.Service, route.Port, route.Ready, route.Reason = m.rule.to.text(h.GetNamespace()), m.rule.to.port, to.reason == "", to.reason
			route.Addresses, route.HTTP2 = to.addresses, to.http2
			t.demand(ctx, &route, wants.Visitors, wants.Unmet)
		}
		for _, host := range hostnamesOf(h) {
			route.Host = host
			routes = append(routes, route)
		}
	}
	return routes
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
func (t *Router) httpBackend(ctx context.Context, from string, to backendRef, grants []unstructured.Unstructured) destination {
	switch {
	case to.namespace == from:
	case !t.store.Scope.Covers(to.namespace):
		return destination{reason: "the agent does not manage the namespace " + to.namespace}
	case !granted(grants, from, to):
		return destination{reason: "no ReferenceGrant in " + to.namespace + " lets HTTPRoutes of " + from + " lead to the Service " + to.name}
	}
	return t.backend(ctx, to.namespace, &networkingv1.IngressServiceBackend{Name: to.name, Port: networkingv1.ServiceBackendPort{Number: to.port}})
}
