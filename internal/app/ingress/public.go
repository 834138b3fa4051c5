package ingress

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PublicHost is what the control plane's gateway does with a host.
type PublicHost struct {
	// Served reports that visitors get the App's answer. Pending is set while that is not known: a
	// host that was served stays so.
	Served, Pending bool
	// Given reports that the host is below the gateway's domain, and made for one App.
	Given  bool
	Reason string // why it is not served, and what to do
}

// Public is what is known about the control plane's gateway.
type Public struct {
	// Off is why the cluster owner keeps the public out, and Fix what the owner can do about it.
	// Off is empty where the public is let in.
	Off, Fix string
	// Domain is the gateway's; empty if there is no gateway.
	Domain string
	// Address is the name to which the hosts of this agent's routes lead in DNS.
	Address string
	// Given returns the host that an App has below the domain.
	Given func(runnerapi.Key) string
	// Hosts are the hosts that the control plane knows of this agent.
	Hosts map[string]PublicHost
	// Ports are what it knows of the public ports of this agent's Apps.
	Ports []PublicPort
	// Routes are the routes that this agent has to hosts of Apps, each with why it is refused, or
	// nothing. They are nil while the agent does not know its routes.
	Routes map[AppRoute]string
}

// AppRoute identifies an App's route.
type AppRoute struct {
	App        runnerapi.Key
	Host, Path string
}

// RoutesByApp returns the routes of Apps as Public has them.
func RoutesByApp(routes []Route) map[AppRoute]string {
	out := make(map[AppRoute]string, len(routes))
	for _, r := range routes {
		if r.App.Name == "" || gatewaywire.IsPort(r.Protocol) {
			continue
		}
		why := ""
		if r.Refused {
			why = r.Reason
		}
		out[AppRoute{r.App, r.Host, r.Path}] = why
	}
	return out
}

// refused returns why this agent does not serve an App at a host that the control plane knows,
// which may be that of another App's route; empty if it does.
func (p *Public) refused(a *v1alpha1.App, h runnerapi.IngressHost) string {
	if p.Routes == nil {
		return ""
	}
	why, known := p.Routes[AppRoute{a.Key(), h.Host, workload.PathOf(h)}]
	if !known {
		return "wait until the agent has the route, a few seconds"
	}
	return why
}

// host returns the host that an App has below the gateway's domain; empty if it has none.
func (p *Public) host(a *v1alpha1.App) string {
	if p == nil || p.Off != "" || p.Domain == "" || a.Spec.Ingress == nil || !a.Spec.Ingress.Public {
		return ""
	}
	return p.Given(a.Key())
}

// SetPublic sets what is known about the gateway. The status of each App follows for which
// something has changed. Until the first call nothing is known, and Apps keep what their status
// says.
func (t *Router) SetPublic(ctx context.Context, has Public) error {
	for name, host := range has.Hosts {
		if had := t.public.Load(); host.Pending && had != nil && had.Hosts[name].Served {
			has.Hosts[name] = PublicHost{Served: true}
		}
	}
	had := t.public.Swap(&has)
	if had != nil && had.Domain == has.Domain && had.Off == has.Off && had.Address == has.Address && maps.Equal(had.Hosts, has.Hosts) && maps.Equal(had.Routes, has.Routes) &&
		slices.Equal(had.Ports, has.Ports) {
		return nil
	}
	if had == nil || had.Domain != has.Domain || had.Off != has.Off {
		t.routed()
	}
	if !t.store.Ready() || !t.leads() {
		return nil // the next leader looks at all Apps
	}
	var list v1alpha1.List
	if err := t.store.Cached.List(ctx, &list, appcache.Untouched); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Spec.Ingress == nil || reflect.DeepEqual(had.of(a), has.of(a)) {
			continue
		}
		if !t.store.Resync(ctx, a.Key()) {
			return nil
		}
	}
	return nil
}

// reached is how the gateway serves an App.
type reached struct {
	// URLs are where it serves the App, and hosts the App's hosts of these.
	urls, hosts []string
	// condition reports whether it serves all of the App's hosts; nil if it knows none of them.
	condition *runnerapi.Condition
}

// givenToAnother is why an App has no routes at another one's host. It does not name that one,
// which may be of others.
const givenToAnother = "the host is given to another App; leave it out, or use a host of your own"

// givenBefore is why an App has no route at a path that an older route has.
const givenBefore = "an older route of this cluster has the same host and path; remove that one, or use another host or path"

// of returns how the gateway serves an App.
func (p *Public) of(a *v1alpha1.App) (r reached) {
	if p == nil || a.Spec.Ingress == nil {
		return r
	}
	if a.Spec.Ingress.GatewayAlone() {
		r.condition = p.unavailable()
	}
	if a.Spec.Ingress.Public && r.condition == nil {
		r = p.given(a)
	}
	known := len(r.urls)
	for _, h := range a.Spec.Ingress.Hosts {
		host, ok := p.Hosts[h.Host]
		switch {
		case !ok && (a.Spec.Ingress.Visitors != nil || h.Passthrough):
			host.Reason = notKnownYet
		case !ok:
			continue
		}
		if why := p.refused(a, h); ok && why != "" {
			host = PublicHost{Reason: why}
		}
		if host.Given && h.Host != p.ownHost(a, h) {
			host = PublicHost{Reason: givenToAnother}
		}
		known++
		if host.Served {
			r.urls, r.hosts = append(r.urls, urlOf(h)), append(r.hosts, h.Host)
		} else if r.condition == nil {
			r.condition = notServedAt(h.Host, host.Reason)
		}
	}
	if len(a.Spec.Ingress.Ports) > 0 && p.unavailable() == nil {
		r = p.portsOf(a, r)
	}
	all := len(a.Spec.Ingress.Hosts)
	if a.Spec.Ingress.Public {
		all++
	}
	if r.condition == nil && known == all {
		r.condition = runnerapi.ConditionIngressReady.True(runnerapi.ReasonServed)
	}
	return r
}

// ownHost returns the App's host below the gateway's domain, as far as an entry of its hosts may
// name it.
func (p *Public) ownHost(a *v1alpha1.App, h runnerapi.IngressHost) string {
	if h.Passthrough && !a.Spec.Ingress.Public {
		return p.portHost(a)
	}
	return p.host(a)
}

// urlOf returns where the gateway serves a host.
func urlOf(h runnerapi.IngressHost) string {
	if h.Passthrough {
		return controlapi.PassedURL(h.Host)
	}
	return "https://" + h.Host + workload.PathOf(h)
}

// notKnownYet is why a host is not served whose route the control plane is about to get.
const notKnownYet = "wait until the control plane knows the host, a few seconds"

// unavailable returns why the gateway serves no App of this agent; nil if it may.
func (p *Public) unavailable() *runnerapi.Condition {
	ready := runnerapi.ConditionIngressReady
	switch {
	case p.Off != "":
		return ready.False(runnerapi.ReasonNotPublic, p.Off, p.Fix)
	case p.Domain == "":
		return ready.False(runnerapi.ReasonNoGateway, "the gateway alone is to serve the App, and the control plane has no gateway",
			"have the operator start the control plane with --gateway-domain, or remove ingress.public, ingress.ports, ingress.visitors and passthrough")
	}
	return nil
}

// given returns how the gateway serves an App at its host below the domain.
func (p *Public) given(a *v1alpha1.App) (r reached) {
	name := p.host(a)
	host, ok := p.Hosts[name]
	switch {
	case !ok:
		r.condition = notServedAt(name, notKnownYet)
	case !host.Served:
		r.condition = notServedAt(name, host.Reason)
	default:
		r.urls = []string{"https://" + name + "/"}
	}
	return r
}

func notServedAt(host, fix string) *runnerapi.Condition {
	return runnerapi.ConditionIngressReady.False(runnerapi.ReasonHostNotServed, "the gateway does not serve "+host, fix)
}
