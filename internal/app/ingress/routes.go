package ingress

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/htpasswd"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Route is a public host, or a path of it, that an Ingress or an HTTPRoute leads to a Service.
type Route struct {
	// App is whose route it is; its name is empty for one of a chart, a set or a source.
	App      runnerapi.Key
	Host     string
	Path     string
	PathType string // as in an Ingress, or RegularExpression
	// Conditions are what a request has to meet beside its host and path.
	Conditions gateway.Conditions
	TLS        bool // the Ingress names a certificate for the host
	// Service is the name of the Service, after its namespace and a slash if that is another one.
	// Service and Port are empty if the route cannot be carried at all; Reason says why. Refused
	// reports that the host is given to another App, to which alone requests go, that an older
	// route has the same host and path, or that a Gateway does not accept the HTTPRoute.
	Service string
	Port    int32
	Ready   bool
	Refused bool
	Reason  string // why it is not ready
	// Endpoint is the public address of the ingress controller for the host; empty for none.
	Endpoint string
	// Shares are the Services of an HTTPRoute that has several, and FilterTypes the types of its
	// filters. One that redirects is ready, and has no Service.
	Shares      []runnerapi.RouteShare
	FilterTypes []string

	// Protocol is that of a public port, TLS of a host whose connections reach the App with their
	// TLS, and empty for requests of HTTP. PublicPort is the one that the App names, 0 for any.
	Protocol   string
	PublicPort int32

	// The rest is for this agent alone.
	Addresses []string      // of the Service, host:port
	HTTP2     bool          // the Service declares HTTP/2 without TLS
	Within    time.Duration // for the App to begin its answer; zero is the default
	Visitors  gateway.Visitors
	Proxied   bool          // connections begin with a header of the PROXY protocol
	Idle      time.Duration // for which a connection may have nothing to say; zero is the default
	Secrets   []string      // decide whom to let in. Nothing reports their changes
	Warnings  []string      // annotations that are ignored, and mirrors that are not reached
	// Backends are the Services of an HTTPRoute in place of Addresses and HTTP2, if it has several,
	// and Filters what it does on the way. Limited has Within hold for HTTP/2, too.
	Backends []gateway.Backend
	Filters  *gateway.Filters
	Limited  bool
	Created  time.Time
	Pattern  *regexp.Regexp // of a path that is a regular expression
	// Name is the namespace and the name of the HTTPRoute, and Order the place of the match in it:
	// of equal routes the first counts. They are empty for others.
	Name  string
	Order int

	// unresolved is the Gateway API's reason for the first reference of an HTTPRoute that leads
	// nowhere; empty if all lead to Services.
	unresolved, unresolvedWhy string
}

// Router finds where public traffic of Apps goes, and reports whether it arrives.
type Router struct {
	store *appcache.Store
	core  rest.Interface // of the core API
	log   zerolog.Logger
	now   func() time.Time

	secretTypes secretTypes
	passwords   *credentials[htpasswd.File]
	providers   *credentials[signin.OpenID]
	tokens      *credentials[signin.Tokens]
	public      atomic.Pointer[Public] // nil while nothing is known of the gateway
	leadsToPods atomic.Bool            // a route leads to a Service without its own address

	api *gatewayAPI
	// DirectAddresses are networks whose load balancers count as public.
	DirectAddresses []netip.Prefix
	// SignIn is how visitors of Apps sign in. It is set before the Router is used.
	SignIn SignIn

	leads  func() bool // this replica leads
	routed func()      // routes may have changed
}

// New returns a Router, which reads kinds that a cluster may lack from optional. leads reports
// whether this replica leads, and routed is called when the Router's routes may have changed.
func New(kept *appcache.Store, core rest.Interface, optional appcache.Sources, leads func() bool, routed func(), log zerolog.Logger, now func() time.Time) *Router {
	t := &Router{store: kept, core: core, leads: leads, routed: routed, log: log, now: now}
	t.passwords, t.providers, t.tokens = users(), t.identityProviders(), serviceTokens()
	t.api = newGatewayAPI(t, optional)
	return t
}

// LeadsToPods reports whether routes change with pods: one leads to a Service without an address of
// its own.
func (t *Router) LeadsToPods() bool { return t.leadsToPods.Load() }

// Routes returns the routes of all Ingresses and HTTPRoutes with the agent's label, and those of
// public Apps, in a stable order, each once. They come from the caches.
func (t *Router) Routes(ctx context.Context) ([]Route, error) {
	if !t.known() {
		return nil, appcache.NotReady()
	}
	var ingresses networkingv1.IngressList
	if err := t.store.Cached.List(ctx, &ingresses, appcache.Untouched); err != nil {
		return nil, fmt.Errorf("list Ingresses: %w", err)
	}
	var list v1alpha1.List
	if err := t.store.Cached.List(ctx, &list, appcache.Untouched); err != nil {
		return nil, fmt.Errorf("list Apps: %w", err)
	}
	apps := make(map[types.UID]*v1alpha1.App, len(list.Items))
	for i := range list.Items {
		apps[list.Items[i].UID] = &list.Items[i]
	}
	routes := t.givenRoutes(ctx, list.Items)
	for i := range ingresses.Items {
		in := &ingresses.Items[i]
		if !in.DeletionTimestamp.IsZero() || !t.store.Scope.Covers(in.Namespace) {
			continue
		}
		if of, serves := appOf(in, apps); serves {
			routes = append(routes, t.routesOf(ctx, of, in)...)
		}
	}
	more, err := t.api.routes(ctx)
	if err != nil {
		return nil, err
	}
	routes = oneWay(t.refuseForeign(append(routes, more...), list.Items))
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(compareRoutes(a, b), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Order, b.Order))
	})
	routes = slices.CompactFunc(routes, func(a, b Route) bool { return compareRoutes(a, b) == 0 })
	refuseYounger(routes)
	settleEndpoints(routes)
	return routes, nil
}

// appOf returns the App that an Ingress belongs to, nil for none, and whether the Ingress serves.
// That of an App does not once the App is deleted.
func appOf(in *networkingv1.Ingress, apps map[types.UID]*v1alpha1.App) (of *v1alpha1.App, serves bool) {
	owner := metav1.GetControllerOfNoCopy(in)
	if owner == nil || owner.Kind != v1alpha1.Kind {
		return nil, true
	}
	of = apps[owner.UID]
	return of, of != nil && of.Namespace == in.Namespace && of.DeletionTimestamp.IsZero()
}

// refuseForeign refuses the routes at hosts that are given to other Apps.
func (t *Router) refuseForeign(routes []Route, apps []v1alpha1.App) []Route {
	public, owners := t.public.Load(), map[string]runnerapi.Key{}
	for i := range apps {
		if host := public.host(&apps[i]); host != "" {
			owners[host] = apps[i].Key()
		}
	}
	for i, r := range routes {
		if owner, given := owners[r.Host]; given && owner != r.App {
			routes[i] = r.refuse(givenToAnother)
		}
	}
	return routes
}

// refuse returns a route that leads nowhere.
func (r *Route) refuse(why string) Route {
	return Route{
		App: r.App, Host: r.Host, Path: r.Path, PathType: r.PathType, Conditions: r.Conditions, TLS: r.TLS, Protocol: r.Protocol, Created: r.Created,
		Refused: true, Reason: why,
	}
}

// refuseYounger refuses routes of Apps whose requests all go to an older route, as gateway.Route
// says.
func refuseYounger(routes []Route) {
	type place struct{ host, path, pathType, conditions string }
	at := func(r Route) place {
		kind := r.PathType
		if kind != string(networkingv1.PathTypeExact) && r.Pattern == nil {
			kind, r.Path = "", strings.TrimSuffix(r.Path, "/") // a prefix
		}
		return place{r.Host, r.Path, kind, r.Conditions.String()}
	}
	oldest := make(map[place]int, len(routes))
	for i, r := range routes {
		if r.Protocol != "" || r.Refused {
			continue
		}
		of, there := oldest[at(r)]
		if !there || cmp.Or(r.Created.Compare(routes[of].Created), cmp.Compare(r.Name, routes[of].Name)) < 0 {
			oldest[at(r)] = i
		}
	}
	for i, r := range routes {
		if of, there := oldest[at(r)]; there && r.Protocol == "" && r.App.Name != "" && !r.Refused && routes[of].App != r.App {
			routes[i] = r.refuse(givenBefore)
		}
	}
}

func compareRoutes(a, b Route) int {
	return cmp.Or(cmp.Compare(a.App.Namespace, b.App.Namespace), cmp.Compare(a.App.Name, b.App.Name),
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), cmp.Compare(a.PathType, b.PathType), cmp.Compare(a.Service, b.Service),
		cmp.Compare(a.Conditions.String(), b.Conditions.String()),
		cmp.Compare(a.Protocol, b.Protocol), comparePorts(a, b))
}

// comparePorts compares the ports of two routes of public ports.
func comparePorts(a, b Route) int {
	if a.Protocol == "" || b.Protocol == "" {
		return 0
	}
	return cmp.Compare(a.Port, b.Port)
}

func (t *Router) routesOf(ctx context.Context, a *v1alpha1.App, in *networkingv1.Ingress) (routes []Route) {
	app, stopped := runnerapi.Key{Namespace: in.Namespace}, ""
	if a != nil && a.Spec.Ingress != nil && len(workload.ControllerHosts(a)) == 0 {
		return nil // its routes have no Ingress; this one is about to go
	}
	if a != nil {
		app, stopped = a.Key(), notServed(a)
	}
	wants := runnerapi.ReadRouteAnnotations(in.Annotations)
	endpoint := ""
	if !wants.Tunnel {
		endpoint = endpointOf(in, t.DirectAddresses)
	}
	for _, rule := range in.Spec.Rules {
		if rule.Host == "" || rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			if p.Backend.Service == nil {
				continue
			}
			to := t.backend(ctx, in.Namespace, p.Backend.Service)
			if to.port == 0 {
				continue // a port that the Service does not have
			}
			reason := cmp.Or(stopped, to.reason)
			route := Route{
				App: app, Host: strings.ToLower(rule.Host), Path: cmp.Or(p.Path, "/"),
				PathType: string(ptr.Deref(p.PathType, networkingv1.PathTypeImplementationSpecific)),
				TLS:      encrypted(in, rule.Host), Service: p.Backend.Service.Name, Port: to.port,
				Ready: reason == "", Reason: reason, Endpoint: endpoint,
				Addresses: to.addresses, HTTP2: to.http2, Created: in.CreationTimestamp.Time,
				Within: wants.Within, Warnings: wants.Warnings,
			}
			t.demand(ctx, &route, wants.Visitors, wants.Unmet)
			routes = append(routes, route)
		}
	}
	return routes
}

// givenRoutes returns the routes of Apps to their hosts below the gateway's domain, and those of
// Apps with visitors to all of their hosts. No Ingress has these, so that no ingress controller
// takes them for its own.
func (t *Router) givenRoutes(ctx context.Context, apps []v1alpha1.App) (routes []Route) {
	public := t.public.Load()
	for i := range apps {
		a := &apps[i]
		if !a.DeletionTimestamp.IsZero() || !t.store.Scope.Covers(a.Namespace) {
			continue
		}
		if host := public.host(a); host != "" {
			routes = t.givenRoute(ctx, routes, a, runnerapi.IngressHost{Host: host})
		}
		routes = t.portRoutes(ctx, routes, a, public)
		if a.Spec.Ingress == nil {
			continue
		}
		for _, h := range a.Spec.Ingress.Hosts {
			switch {
			case h.Passthrough:
				routes = t.passedRoute(ctx, routes, a, h)
			case a.Spec.Ingress.Visitors != nil:
				routes = t.givenRoute(ctx, routes, a, h)
			}
		}
	}
	return routes
}

// givenRoute adds the route of an App, which has an ingress, to a host.
func (t *Router) givenRoute(ctx context.Context, routes []Route, a *v1alpha1.App, h runnerapi.IngressHost) []Route {
	route, leads := t.hostRoute(ctx, a, h)
	if !leads {
		return routes
	}
	wants := runnerapi.ReadRouteAnnotations(a.Spec.Ingress.Annotations)
	route.Within, route.Warnings = wants.Within, wants.Warnings
	v, unmet := demandsOf(a)
	t.demand(ctx, &route, v, unmet)
	return append(routes, route)
}

// hostRoute returns the route of an App to a host, before its demands. It leads nowhere if the App
// has no TCP port.
func (t *Router) hostRoute(ctx context.Context, a *v1alpha1.App, h runnerapi.IngressHost) (route Route, leads bool) {
	port := cmp.Or(h.Port, workload.FirstTCPPort(a))
	if port == 0 {
		return route, false
	}
	to := t.backend(ctx, a.Namespace, &networkingv1.IngressServiceBackend{Name: a.Name, Port: networkingv1.ServiceBackendPort{Number: port}})
	reason := cmp.Or(notServed(a), to.reason)
	return Route{
		App: a.Key(), Host: h.Host, Path: workload.PathOf(h), PathType: string(networkingv1.PathTypePrefix), Service: a.Name, Port: port,
		Ready: reason == "", Reason: reason, Addresses: to.addresses, HTTP2: to.http2, Created: a.CreationTimestamp.Time,
	}, true
}

func encrypted(in *networkingv1.Ingress, host string) bool {
	return slices.ContainsFunc(in.Spec.TLS, func(t networkingv1.IngressTLS) bool { return slices.Contains(t.Hosts, host) })
}

// notServed returns why a request to the App's hosts would not be answered, or nothing. Of the
// diagnosis it has the cause alone: the rest is news of the App.
func notServed(a *v1alpha1.App) string {
	switch {
	case a.Status.ReadyReplicas == 0 && a.Status.Diagnosis != nil:
		return "no pod is ready: " + string(a.Status.Diagnosis.Cause)
	case a.Status.ReadyReplicas == 0 && a.Observed() && a.Status.DesiredReplicas == 0:
		return "the App is stopped: no pods are asked for"
	case a.Status.ReadyReplicas == 0:
		return "no pod is ready"
	}
	return ""
}
