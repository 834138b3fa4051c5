package runnertest

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// unproven begins hosts of which the fake's control plane finds no proof.
const unproven = "unproven."

// Traffic implements backend.Routes: each App of the fake has had one request a minute.
func (b fakeRoutes) Traffic(ctx context.Context, key runnerapi.Key, opts runnerapi.TrafficOptions) (runnerapi.Traffic, error) {
	if err := b.enter(ctx, Call{Verb: "Routes.Traffic", Key: key}); err != nil {
		return runnerapi.Traffic{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.get(key); err != nil {
		return runnerapi.Traffic{}, err
	}
	t := runnerapi.Traffic{Namespace: key.Namespace, Name: key.Name, Start: epoch, End: epoch.Add(opts.Since), Step: "1m0s"}
	if opts.Since > time.Hour {
		t.Step = "1h0m0s"
	}
	for range 4 {
		t.Points = append(t.Points, runnerapi.TrafficPoint{Requests: 1, P95: new(12.5)})
	}
	t.Points[3].Errors = 1
	t.Hosts = []runnerapi.HostTraffic{
		{
			Host: key.Name + ".example.com", Mode: runnerapi.RouteTunnel, Counted: true, Requests: 4, Errors: 1, Received: 100, Sent: 2 << 20,
			Statuses: runnerapi.StatusCounts{Successful: 3, ServerError: 1}, Failed: map[string]int64{"timed-out": 1},
			Latency: &runnerapi.Latency{P50: 5, P95: 12.5, P99: 60000},
		},
		{Host: "direct.example.com", Mode: runnerapi.RouteDirect, Counted: true},
	}
	return t, nil
}

// AccessLog implements backend.Routes: each App of the fake has had one visitor.
func (b fakeRoutes) AccessLog(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	if err := b.enter(ctx, Call{Verb: "Routes.AccessLog", Key: key}); err != nil {
		return err
	}
	b.mu.Lock()
	_, err := b.get(key)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	e := runnerapi.AccessEntry{
		RequestID: "3f1c", Host: key.Name + ".example.com", Method: "GET", Path: "/", Status: 200, Sent: 5, DurationMillis: 12.5, Address: "203.0.113.7", UserAgent: "curl/8.5",
	}
	err = emit(runnerapi.LogLine{Time: epoch, Pod: "agent-1", Line: `203.0.113.7 "GET ` + e.Host + `/" 200 5 0.013 "curl/8.5" 3f1c`, Request: &e})
	if err == nil && opts.Follow {
		<-ctx.Done()
	}
	return err
}

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
