package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Route is a public host, or a path of it, that an Ingress leads to a Service.
type Route struct {
	// App is whose Ingress it is; its name is empty for one of a chart, a set or a source.
	App      runnerapi.Key
	Host     string
	Path     string
	PathType string // as in an Ingress
	TLS      bool   // the Ingress names a certificate for the host
	Service  string
	Port     int32 // of the Service
	Ready    bool
	Reason   string // why it is not ready

	// The rest is for this agent alone.
	Addresses []string // of the Service, host:port
	HTTP2     bool     // the Service declares HTTP/2 without TLS
	Created   time.Time
}

// Routes returns the routes of all Ingresses with the agent's label, in a stable order, each once.
// They come from the Engine's caches.
func (e *Engine) Routes(ctx context.Context) ([]Route, error) {
	if !e.Ready() {
		return nil, notReady()
	}
	var ingresses networkingv1.IngressList
	if err := e.cached.List(ctx, &ingresses, untouched); err != nil {
		return nil, fmt.Errorf("list Ingresses: %w", err)
	}
	if len(ingresses.Items) == 0 {
		return nil, nil
	}
	var list List
	if err := e.cached.List(ctx, &list, untouched); err != nil {
		return nil, fmt.Errorf("list Apps: %w", err)
	}
	apps := make(map[types.UID]*App, len(list.Items))
	for i := range list.Items {
		apps[list.Items[i].UID] = &list.Items[i]
	}
	var routes []Route
	for i := range ingresses.Items {
		in := &ingresses.Items[i]
		if !in.DeletionTimestamp.IsZero() || !e.scope().Covers(in.Namespace) {
			continue
		}
		var of *App
		if owner := metav1.GetControllerOfNoCopy(in); owner != nil && owner.Kind == Kind {
			if of = apps[owner.UID]; of == nil || !of.DeletionTimestamp.IsZero() {
				continue
			}
		}
		routes = append(routes, e.routesOf(ctx, of, in)...)
	}
	slices.SortStableFunc(routes, compareRoutes)
	return slices.CompactFunc(routes, func(a, b Route) bool { return compareRoutes(a, b) == 0 }), nil
}

func compareRoutes(a, b Route) int {
	return cmp.Or(cmp.Compare(a.App.Namespace, b.App.Namespace), cmp.Compare(a.App.Name, b.App.Name),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.PathType, b.PathType), cmp.Compare(a.Service, b.Service))
}

func (e *Engine) routesOf(ctx context.Context, a *App, in *networkingv1.Ingress) (routes []Route) {
	app, stopped := runnerapi.Key{Namespace: in.Namespace}, ""
	if a != nil {
		app, stopped = a.key(), notServed(a)
	}
	for _, rule := range in.Spec.Rules {
		if rule.Host == "" || rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			if p.Backend.Service == nil {
				continue
			}
			to := e.backend(ctx, in.Namespace, p.Backend.Service)
			if to.port == 0 {
				continue // a port that the Service does not have
			}
			reason := cmp.Or(stopped, to.reason)
			routes = append(routes, Route{
				App: app, Host: strings.ToLower(rule.Host), Path: cmp.Or(p.Path, "/"),
				PathType: string(ptr.Deref(p.PathType, networkingv1.PathTypeImplementationSpecific)),
				TLS:      encrypted(in, rule.Host), Service: p.Backend.Service.Name, Port: to.port,
				Ready: reason == "", Reason: reason,
				Addresses: to.addresses, HTTP2: to.http2, Created: in.CreationTimestamp.Time,
			})
		}
	}
	return routes
}

func encrypted(in *networkingv1.Ingress, host string) bool {
	return slices.ContainsFunc(in.Spec.TLS, func(t networkingv1.IngressTLS) bool { return slices.Contains(t.Hosts, host) })
}

// notServed returns why a request to the App's hosts would not be answered, or nothing. Of the
// diagnosis it has the cause alone: the rest is news of the App.
func notServed(a *App) string {
	switch {
	case a.Status.ReadyReplicas == 0 && a.Status.Diagnosis != nil:
		return "no pod is ready: " + string(a.Status.Diagnosis.Cause)
	case a.Status.ReadyReplicas == 0 && a.observed() && a.Status.DesiredReplicas == 0:
		return "the App is stopped: no pods are asked for"
	case a.Status.ReadyReplicas == 0:
		return "no pod is ready"
	}
	return ""
}

// routed signals that routes may have changed.
func (e *Engine) routed() {
	if e.cfg.Routed != nil {
		e.cfg.Routed()
	}
}
