package runnertest

import (
	"cmp"
	"context"
	"net/url"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

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
		for _, public := range settle(a).Status.PublicURLs {
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
	slices.SortFunc(routes, func(a, b runnerapi.Route) int { return cmp.Compare(a.URL, b.URL) })
	return routes, nil
}
