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

// routesPause is how long changes of routes are gathered: a rollout is many.
const routesPause = time.Second

// led is what this replica does when it begins to lead.
func (a *Agent) led() {
	a.beatSoon()
	a.routesSoon()
}

// routesSoon asks for a comparison of the routes now.
func (a *Agent) routesSoon() {
	select {
	case a.routed <- struct{}{}:
	default: // one is due already
	}
}

// routesChanged is whom the engine tells of changes; nobody where the customer
// has not turned ingress sync on.
func (a *Agent) routesChanged() func() {
	if !a.opts.Config.EnableIngressSync {
		return nil
	}
	return a.routesSoon
}

// syncRoutes keeps the control plane's routes of this agent what they are, until
// ctx ends. It compares states instead of passing on changes: at the start, when
// something changed, when a tunnel went down or came up (the control plane may be
// one that was restored from a backup), and when this replica begins to lead. With
// ingress sync turned off there are none, and those from before are withdrawn.
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
		case <-changed: // now or while we slept: this may be another control plane
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

// compareRoutes sends the routes if the control plane has others. It asks first
// where it does not know: most agents have no news after a reconnect.
func (a *Agent) compareRoutes(ctx context.Context, control *controlapi.Client, engine *app.Engine, theirs *knownRoutes) error {
	if !engine.Leads() {
		theirs.sure = false // another replica tells them meanwhile
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

// routes is the set as it is to be sent.
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

// boundRoutes takes as many routes as may be sent, in their order.
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

// sayRoutesRefused tells why the control plane did not take the routes; they are
// sent again when they change. That the agent is not let in, the heartbeat tells.
func (a *Agent) sayRoutesRefused(err error) {
	if isRefused(err) {
		a.log.Debug().Err(err).Msg("the control plane did not take the routes")
		return
	}
	a.log.Error().Err(err).Msg("the control plane refused the routes; they are sent again when they change")
}
