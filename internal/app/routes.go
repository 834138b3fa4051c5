package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Route is a public host, or a path of it, at which an Ingress serves an App.
type Route struct {
	App      runnerapi.Key
	Host     string
	Path     string
	PathType string // as in an Ingress
	TLS      bool   // the Ingress names a certificate for the host
	Port     int32  // of the App's Service
	Ready    bool
	Reason   string // why it is not ready
}

// Routes returns the routes of all Apps that are not being deleted, in a stable order, each once.
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
		owner := metav1.GetControllerOfNoCopy(in)
		if owner == nil || apps[owner.UID] == nil || !apps[owner.UID].DeletionTimestamp.IsZero() {
			continue
		}
		routes = append(routes, routesOf(apps[owner.UID], in)...)
	}
	slices.SortStableFunc(routes, compareRoutes)
	return slices.CompactFunc(routes, func(a, b Route) bool { return compareRoutes(a, b) == 0 }), nil
}

func compareRoutes(a, b Route) int {
	return cmp.Or(cmp.Compare(a.App.Namespace, b.App.Namespace), cmp.Compare(a.App.Name, b.App.Name),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.PathType, b.PathType))
}

func routesOf(a *App, in *networkingv1.Ingress) (routes []Route) {
	reason := notServed(a, in)
	for _, rule := range in.Spec.Rules {
		if rule.Host == "" || rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			if p.Backend.Service == nil {
				continue
			}
			routes = append(routes, Route{
				App: a.key(), Host: rule.Host, Path: cmp.Or(p.Path, "/"),
				PathType: string(ptr.Deref(p.PathType, networkingv1.PathTypeImplementationSpecific)),
				TLS:      encrypted(in, rule.Host), Port: p.Backend.Service.Port.Number,
				Ready: reason == "", Reason: reason,
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
func notServed(a *App, in *networkingv1.Ingress) string {
	switch {
	case a.Status.ReadyReplicas == 0 && a.Status.Diagnosis != nil:
		return "no pod is ready: " + string(a.Status.Diagnosis.Cause)
	case a.Status.ReadyReplicas == 0 && a.observed() && a.Status.DesiredReplicas == 0:
		return "the App is stopped: no pods are asked for"
	case a.Status.ReadyReplicas == 0:
		return "no pod is ready"
	case len(in.Status.LoadBalancer.Ingress) > 0:
		return ""
	case in.Spec.IngressClassName != nil:
		return fmt.Sprintf("no ingress controller of the class %s has published an address of the Ingress", *in.Spec.IngressClassName)
	}
	return "no ingress controller has published an address of the Ingress"
}

// routed signals that routes may have changed.
func (e *Engine) routed() {
	if e.cfg.Routed != nil {
		e.cfg.Routed()
	}
}
