package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// routesPause is how long changes of routes are gathered: a rollout causes many.
const routesPause = 250 * time.Millisecond

// led is called when this replica begins to lead.
func (a *Agent) led() {
	a.beatSoon()
	a.routesSoon()
}

// routesSoon requests a comparison of the routes now.
func (a *Agent) routesSoon() {
	select {
	case a.routed <- struct{}{}:
	default: // one is already due
	}
}

const (
	// routesAtLeast is how often the routes are sent though nothing changed: the control plane
	// forgets them after eight hours.
	routesAtLeast = 4 * time.Hour
	// hostsSoon is how soon the control plane is asked about hosts that it did not serve when it was
	// sent them, and hostsAgain how often at last: each time is twice the time before.
	hostsSoon  = 2 * time.Second
	hostsAgain = time.Minute
)

// routesChanged returns the function that the engine calls on changes; nil if the cluster owner has
// turned ingress sync off.
func (a *Agent) routesChanged() func() {
	if !a.opts.Config.EnableIngressSync {
		return nil
	}
	return a.routesSoon
}

// syncRoutes keeps the control plane's copy of this agent's routes up to date, until ctx ends. It
// compares states and does not pass on changes. It does so at the start, after each change, and
// when this replica begins to lead. It also does so when a tunnel goes down or comes up, because
// the control plane may have been restored from a backup. With ingress sync turned off, or a control
// plane without a gateway, there are no routes, and earlier ones are withdrawn.
func (a *Agent) syncRoutes(ctx context.Context, control *controlapi.Client, tun *tunnel.Set, engine *app.Engine) error {
	wait := newBackoff()
	var theirs knownRoutes
	for {
		changed := tun.Changed()
		err := a.compareRoutes(ctx, control, engine, &theirs)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent stops; that the call failed for it is no error
		case err != nil && passing(err):
			theirs.sure = false
			a.log.Debug().Err(err).Msg("the control plane does not have the newest routes yet; trying again")
			if !retry.Wait(ctx, wait.NextBackOff()) {
				return nil
			}
			continue
		case err != nil:
			a.sayRoutesRefused(err)
		}
		wait.Reset()
		select {
		case <-ctx.Done():
			return nil
		case <-a.routed:
		case <-changed:
		case <-time.After(theirs.next()):
			theirs.sure = false
		}
		if !retry.Wait(ctx, retry.Jitter(routesPause)) {
			return nil
		}
		select {
		case <-changed: // now or during the wait: this may be another control plane
			theirs.sure = false
		default:
		}
	}
}

// knownRoutes is what the control plane has, as far as this replica knows.
type knownRoutes struct {
	controlapi.RoutesState
	sure bool
	sent time.Time // when the control plane was last sent the routes
	due  time.Duration
	// again is when the control plane is asked about hosts, from when it was last asked.
	again time.Duration
}

// next returns when to ask again, though nothing changed.
func (k *knownRoutes) next() time.Duration {
	switch {
	case k.Gateway == "" || k.Digest == "":
		return routesAtLeast // a gateway that is turned on comes with another tunnel
	case slices.ContainsFunc(k.Hosts, func(h controlapi.HostStatus) bool { return !h.Served }):
		k.again = min(max(hostsSoon, 2*k.again), hostsAgain)
		return retry.Jitter(k.again)
	}
	return max(hostsAgain, k.due-time.Since(k.sent))
}

// expiring reports whether the routes are to be sent as a sign of life.
func (k *knownRoutes) expiring() bool { return time.Since(k.sent) >= k.due }

// compareRoutes sends the routes if the control plane has others. It asks first if it does not know
// what the control plane has: most agents have no changes after a reconnect.
func (a *Agent) compareRoutes(ctx context.Context, control *controlapi.Client, engine *app.Engine, theirs *knownRoutes) error {
	routes, err := a.routes(ctx, engine)
	if err != nil {
		return err
	}
	a.public.Set(backendsOf(routes)) // in every replica: public streams come to all of them
	if !engine.Leads() {
		theirs.sure = false // another replica sends them meanwhile
		return nil
	}
	if !theirs.sure {
		if theirs.RoutesState, err = control.Routes(ctx); err != nil {
			return err
		}
		theirs.sure = true
		if err := engine.SetPublic(ctx, publicHosts(theirs.Hosts)); err != nil {
			return err
		}
	}
	if theirs.Gateway == "" {
		routes = nil // there is nothing that would lead to them
	}
	ours, err := boundRoutes(routes)
	if err != nil {
		return err
	}
	if ours.Digest() == theirs.Digest && (len(routes) == 0 || !theirs.expiring()) {
		return nil
	}
	theirs.sure = false // until it has answered
	if theirs.RoutesState, err = control.PutRoutes(ctx, ours); err != nil {
		return err
	}
	theirs.again = 0
	theirs.sure, theirs.sent, theirs.due = true, time.Now(), routesAtLeast-rand.N(routesAtLeast/4) //nolint:gosec // spreading load needs no secrecy
	a.log.Info().Int("routes", len(ours.Routes)).Int("omitted", ours.Omitted).Msg("told the control plane at which hosts the Apps are served")
	return engine.SetPublic(ctx, publicHosts(theirs.Hosts))
}

// publicHosts returns what the control plane does with this agent's hosts.
func publicHosts(statuses []controlapi.HostStatus) map[string]app.PublicHost {
	hosts := make(map[string]app.PublicHost, len(statuses))
	for _, h := range statuses {
		hosts[h.Host] = app.PublicHost{Served: h.Served, Reason: printable.Text(h.Reason)}
	}
	return hosts
}

// routes returns the routes of this agent; none if the cluster owner has turned them off.
func (a *Agent) routes(ctx context.Context, engine *app.Engine) ([]app.Route, error) {
	if !a.opts.Config.EnableIngressSync {
		return nil, nil
	}
	return engine.Routes(ctx)
}

// backendsOf returns where the routes lead.
func backendsOf(routes []app.Route) []gateway.Route {
	backends := make([]gateway.Route, len(routes))
	for i, r := range routes {
		backends[i] = gateway.Route{
			Host: r.Host, Path: r.Path, PathType: r.PathType, Addresses: r.Addresses, HTTP2: r.HTTP2, Created: r.Created,
		}
	}
	return backends
}

// boundRoutes returns as many routes as may be sent, in order.
func boundRoutes(routes []app.Route) (controlapi.RoutesRequest, error) {
	req, size := controlapi.RoutesRequest{Routes: []controlapi.Route{}}, 0
	for i, r := range routes {
		out := controlapi.Route{
			Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS,
			Namespace: r.App.Namespace, App: r.App.Name, Service: r.Service, Port: r.Port, Ready: r.Ready, Reason: r.Reason,
		}
		text, err := json.Marshal(out)
		if err != nil {
			return req, fmt.Errorf("encode a route: %w", err)
		}
		if size += len(text) + 1; i == controlapi.MaxRoutes || size > controlapi.MaxRoutesBytes {
			req.Omitted = len(routes) - i
			break
		}
		req.Routes = append(req.Routes, out)
	}
	return req, nil
}

// sayRoutesRefused logs why the control plane refused the routes; they are sent again when they
// change. It leaves out a refusal of the agent itself, which the heartbeat reports.
func (a *Agent) sayRoutesRefused(err error) {
	if isRefused(err) {
		a.log.Debug().Err(err).Msg("the control plane did not take the routes")
		return
	}
	a.log.Error().Err(err).Msg("the control plane refused the routes; they are sent again when they change")
}
