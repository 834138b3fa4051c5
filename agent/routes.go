package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// routesPause is how long changes of routes are gathered: a rollout causes many.
const routesPause = time.Second

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

// routesChanged returns the function that the engine calls on changes; nil unless the cluster owner
// has enabled ingress sync.
func (a *Agent) routesChanged() func() {
	if !a.opts.Config.EnableIngressSync {
		return nil
	}
	return a.routesSoon
}

// syncRoutes keeps the control plane's copy of this agent's routes up to date, until ctx ends. It
// compares states and does not pass on changes. It does so at the start, after each change, and
// when this replica begins to lead. It also does so when a tunnel goes down or comes up, because
// the control plane may have been restored from a backup. With ingress sync disabled there are no
// routes, and earlier ones are withdrawn.
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
	digest string
	sure   bool
}

// compareRoutes sends the routes if the control plane has others. It asks first if it does not know
// what the control plane has: most agents have no changes after a reconnect.
func (a *Agent) compareRoutes(ctx context.Context, control *controlapi.Client, engine *app.Engine, theirs *knownRoutes) error {
	if !engine.Leads() {
		theirs.sure = false // another replica sends them meanwhile
		return nil
	}
	ours, err := a.routes(ctx, engine)
	if err != nil {
		return err
	}
	if !theirs.sure {
		state, err := control.Routes(ctx)
		if err != nil {
			return err
		}
		theirs.digest, theirs.sure = state.Digest, true
	}
	if ours.Digest() == theirs.digest {
		return nil
	}
	theirs.sure = false // until it has answered
	state, err := control.PutRoutes(ctx, ours)
	if err != nil {
		return err
	}
	theirs.digest, theirs.sure = state.Digest, true
	a.log.Info().Int("routes", len(ours.Routes)).Int("omitted", ours.Omitted).Msg("told the control plane at which hosts the Apps are served")
	return nil
}

// routes returns the routes to send.
func (a *Agent) routes(ctx context.Context, engine *app.Engine) (controlapi.RoutesRequest, error) {
	if !a.opts.Config.EnableIngressSync {
		return controlapi.RoutesRequest{}, nil
	}
	routes, err := engine.Routes(ctx)
	if err != nil {
		return controlapi.RoutesRequest{}, err
	}
	return boundRoutes(routes)
}

// boundRoutes returns as many routes as may be sent, in order.
func boundRoutes(routes []app.Route) (controlapi.RoutesRequest, error) {
	req, size := controlapi.RoutesRequest{Routes: []controlapi.Route{}}, 0
	for i, r := range routes {
		out := controlapi.Route{
			Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS,
			Namespace: r.App.Namespace, App: r.App.Name, Port: r.Port, Ready: r.Ready, Reason: r.Reason,
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
