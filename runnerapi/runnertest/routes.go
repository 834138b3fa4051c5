package runnertest

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// unproven begins hosts of which the fake's control plane finds no proof.
const unproven = "unproven."

// List implements backend.Routes, by what the fake's Apps say of themselves.
func (b fakeRoutes) List(ctx context.Context) (routes []runnerapi.Route, err error) {
	if err := b.enter(ctx, Call{Verb: "Routes.List"}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, a := range b.apps {
		if a.Spec.Ingress == nil {
			continue
		}
		a = settle(a)
		b.apps[key] = a // as the agent, whose Apps settle while they are waited for
		for _, public := range a.Status.PublicURLs {
			at, err := url.Parse(public)
			if err != nil {
				return nil, err
			}
			routes = append(routes, runnerapi.Route{
				URL: "https://" + at.Host + at.Path, Host: at.Host, Path: at.Path, PathType: "Prefix", Namespace: key.Namespace, App: key.Name,
				Service: key.Name, Port: a.Spec.Ports[0].ServicePort(), State: runnerapi.RouteServing, Mode: runnerapi.RouteTunnel,
				Proof: "given", Certificate: runnerapi.CertificateReady,
			})
		}
	}
	for key, a := range b.apps {
		if a.Spec.Ingress != nil {
			routes = append(routes, unprovenRoutes(key, *a.Spec.Ingress)...)
		}
	}
	slices.SortFunc(routes, func(a, b runnerapi.Route) int { return cmp.Compare(a.URL, b.URL) })
	return routes, nil
}

func unprovenRoutes(key runnerapi.Key, in runnerapi.Ingress) (routes []runnerapi.Route) {
	for _, h := range in.Hosts {
		if strings.HasPrefix(h.Host, unproven) {
			routes = append(routes, runnerapi.Route{
				URL: "https://" + h.Host + "/", Host: h.Host, Path: "/", PathType: "Prefix", Namespace: key.Namespace, App: key.Name, Service: key.Name, Port: 80,
				State: runnerapi.RouteSuspended, Mode: runnerapi.RouteTunnel, Reason: "the host is not proven",
				Records: []runnerapi.DNSRecord{
					{Name: h.Host, Type: "CNAME", Value: AgentID + ".apps.example.com"},
					{Name: "_pipeops." + h.Host, Type: "TXT", Value: "pipeops-agent=" + AgentID},
				},
			})
		}
	}
	return routes
}
