package ingress

import (
	"context"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PublicPort is what the control plane does with a public port of an App.
type PublicPort struct {
	App        runnerapi.Key
	Protocol   string
	Port       int32 // of the App's Service
	PublicPort int32 // 0 while there is none
	Served     bool
	Reason     string // why it is not served, and what to do
}

// portHost returns the host at which an App has its public ports; empty while that is not known.
func (p *Public) portHost(a *v1alpha1.App) string {
	if p == nil || p.Off != "" || p.Domain == "" {
		return ""
	}
	return p.Given(a.Key())
}

// protocolOf returns the protocol of a public port.
func protocolOf(p runnerapi.IngressPort) string {
	if p.TCP() {
		return gatewaywire.TCP
	}
	return gatewaywire.UDP
}

// portRoutes adds the routes of an App's public ports.
func (t *Router) portRoutes(ctx context.Context, routes []Route, a *v1alpha1.App, public *Public) []Route {
	host := public.portHost(a)
	if host == "" || a.Spec.Ingress == nil {
		return routes
	}
	for _, p := range a.Spec.Ingress.Ports {
		to := t.backendOf(ctx, a.Namespace, &networkingv1.IngressServiceBackend{Name: a.Name, Port: networkingv1.ServiceBackendPort{Number: p.Port}}, protocolOf(p))
		if to.reason == "" {
			to.reason = notServed(a)
		}
		route := Route{
			App: a.Key(), Host: host, Path: "/", PathType: string(networkingv1.PathTypePrefix), Service: a.Name, Port: p.Port,
			Protocol: protocolOf(p), PublicPort: p.PublicPort, Proxied: p.ProxyProtocol, Idle: time.Duration(p.IdleSeconds) * time.Second,
			Ready: to.reason == "", Reason: to.reason, Addresses: to.addresses, Created: a.CreationTimestamp.Time,
		}
		v, unmet := portDemands(a, p)
		t.demand(ctx, &route, v, unmet)
		routes = append(routes, route)
	}
	return routes
}

// portDemands returns whom a port lets in, or why the agent cannot keep to it. A port asks for no
// password, and knows no bodies.
func portDemands(a *v1alpha1.App, p runnerapi.IngressPort) (v *runnerapi.Visitors, unmet string) {
	of, unmet := demandsOf(a)
	out := runnerapi.Visitors{AllowFrom: p.AllowFrom}
	if of != nil {
		out.RequestsPerSecond = of.RequestsPerSecond
	}
	if len(p.AllowFrom) > 0 {
		return &out, ""
	}
	switch {
	case unmet != "":
		return nil, unmet
	case of == nil:
		return nil, ""
	case (of.SignIn != nil || len(of.Secrets()) > 0) && len(of.AllowFrom) == 0:
		return nil, "a public port asks for neither a password nor a sign-in; name allowFrom in ingress.ports or ingress.visitors"
	}
	out.AllowFrom = of.AllowFrom
	return &out, ""
}

// portsOf adds how the gateway serves the App's public ports.
func (p *Public) portsOf(a *v1alpha1.App, r reached) reached {
	for _, port := range a.Spec.Ingress.Ports {
		status := PublicPort{Reason: "wait until the control plane knows the port, a few seconds"}
		i := slices.IndexFunc(p.Ports, func(s PublicPort) bool {
			return s.App == a.Key() && s.Port == port.Port && s.Protocol == protocolOf(port)
		})
		if i >= 0 {
			status = p.Ports[i]
		}
		if _, unmet := portDemands(a, port); unmet != "" {
			status.Served, status.Reason = false, unmet
		}
		url := controlapi.PortURL(protocolOf(port), p.portHost(a), int(status.PublicPort))
		switch {
		case status.Served:
			r.urls = append(r.urls, url)
		case r.condition == nil:
			r.condition = notServedAt(url, status.Reason)
		}
	}
	return r
}
