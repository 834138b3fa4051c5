// Package routes tells the control plane at which public hosts and paths this agent's Apps are
// served, and lists these routes for Runners.
package routes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/traffic"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

const (
	// gather is how long changes of routes are gathered: an App's Service and Ingress are two.
	// pause is the least time between two comparisons: a rollout causes many changes.
	gather, pause = 20 * time.Millisecond, 250 * time.Millisecond
	// sentAtLeast is how often the routes are sent though nothing changed: the control plane
	// forgets them after eight hours.
	sentAtLeast = 4 * time.Hour
	// hostsSoon is how soon the control plane is asked about hosts that it did not serve when it
	// was sent them, and hostsAgain how often at last: each time is twice the time before.
	hostsSoon  = 2 * time.Second
	hostsAgain = time.Minute
	// secretsAgain is how often routes are compared though nothing was heard, if Secrets have the
	// users that they let in.
	secretsAgain = time.Minute
)

// Config configures a Registrar.
type Config struct {
	// Enabled is false if the cluster owner has turned ingress sync off.
	Enabled bool
	Policy  *policy.Policy
	// Public passes public requests to Services.
	Public *gateway.Handler
	// Traffic is what Public has counted, with what other replicas have.
	Traffic *traffic.Sharing
	Replica string
	Log     zerolog.Logger
}

// Registrar registers the routes of an agent at its control plane.
type Registrar struct {
	Config
	due wake.Signal // a comparison with the routes that the control plane has
}

// New returns a Registrar. It makes no requests before Run.
func New(c Config) *Registrar { return &Registrar{Config: c, due: wake.New()} }

// Soon requests a comparison of the routes now.
func (r *Registrar) Soon() {
	r.due.Raise()
}

// Changed returns the function that the engine calls on changes; nil if the cluster owner has
// turned ingress sync off.
func (r *Registrar) Changed() func() {
	if !r.Enabled {
		return nil
	}
	return r.Soon
}

// Run keeps the control plane's copy of this agent's routes up to date, until ctx ends. It
// compares states and does not pass on changes. It does so at the start, after each change, and
// when this replica begins to lead or the policy changes. It also does so when a tunnel goes down
// or comes up, because the control plane may have been restored from a backup. With ingress sync
// turned off, or a control plane without a gateway, there are no routes, and earlier ones are
// withdrawn.
func (r *Registrar) Run(ctx context.Context, control *controlapi.Client, tun *tunnel.Set, engine *app.Engine) error {
	wait := retry.Backoff(time.Second, 30*time.Second)
	var theirs knownRoutes
	for {
		changed, began := tun.Changed(), time.Now()
		err := r.compare(ctx, control, engine, &theirs)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent stops; that the call failed for it is not an error
		case err != nil && controlapi.Passing(err):
			theirs.sure = false
			r.Log.Debug().Err(err).Msg("failed to send the newest routes to the control plane; retrying")
			if !retry.Wait(ctx, wait.NextBackOff()) {
				return nil
			}
			continue
		case err != nil:
			r.sayRefused(err)
		}
		wait.Reset()
		after, ask := theirs.timer()
		select {
		case <-ctx.Done():
			return nil
		case <-r.due:
		case <-changed:
		case <-time.After(after):
			if ask {
				theirs.sure = false
				theirs.putOff()
			}
		}
		if !retry.Wait(ctx, max(gather, pause-time.Since(began))) {
			return nil
		}
		select {
		case <-changed: // now or during the wait: this may be another control plane
			theirs.sure, theirs.met = false, false
		default:
		}
	}
}

// knownRoutes is what the control plane has, as far as this replica knows.
type knownRoutes struct {
	controlapi.RoutesState
	sure bool
	// met is set once the control plane has been asked, through the tunnel that there is now.
	met     bool
	sent    time.Time // when the control plane was last sent the routes
	due     time.Duration
	secrets bool // have the users that some routes let in
	// omitted are the routes that are not sent, each with the reason.
	omitted []ingress.Route
	// ours are the routes of Apps, as ingress.Public has them.
	ours map[ingress.AppRoute]string
	// asked is when the control plane was last asked or sent the routes, and again how long after
	// that it is asked about hosts that it does not serve.
	asked time.Time
	again time.Duration
}

// timer returns when to compare the routes again, though nothing changed, and whether to ask the
// control plane then.
func (k *knownRoutes) timer() (after time.Duration, ask bool) {
	after = k.next()
	if k.secrets && after > secretsAgain {
		return secretsAgain, false
	}
	return after, true
}

// next returns when to ask again, though nothing changed.
func (k *knownRoutes) next() time.Duration {
	switch {
	case k.Gateway == "" || k.Digest == "":
		return sentAtLeast // a gateway that is turned on comes with another tunnel
	case slices.ContainsFunc(k.Hosts, unsettled), slices.ContainsFunc(k.Ports, func(p controlapi.PortStatus) bool { return !p.Served }):
		return max(0, retry.Jitter(k.again)-time.Since(k.asked))
	}
	return max(hostsAgain, k.due-time.Since(k.sent))
}

// putOff has the next attempt to ask come later. An attempt that asks nothing counts, too: this
// replica may not lead.
func (k *knownRoutes) putOff() {
	k.asked, k.again = time.Now(), min(max(hostsSoon, 2*k.again), hostsAgain)
}

// unsettled reports whether a host waits for its proof, its certificate or its App.
func unsettled(h controlapi.HostStatus) bool { return h.Reach != controlapi.ReachReady }

// expiring reports whether the routes are to be sent as a sign of life.
func (k *knownRoutes) expiring() bool { return time.Since(k.sent) >= k.due }

// compare sends the routes if the control plane has others. It asks first if it does not know
// what the control plane has: most agents have no changes after a reconnect.
func (r *Registrar) compare(ctx context.Context, control *controlapi.Client, engine *app.Engine, theirs *knownRoutes) error {
	to, known := r.publicAccess()
	if !known {
		return nil // once it is, Soon brings it here again
	}
	leads := engine.Leads()
	routes, err := r.serve(ctx, engine, to, theirs)
	if err != nil {
		return err
	}
	if leads && !theirs.sure || !theirs.met && !to.closed() {
		if theirs.RoutesState, err = control.Routes(ctx); err != nil {
			return err
		}
		theirs.sure, theirs.met = true, true
		theirs.asked, theirs.again = time.Now(), max(hostsSoon, theirs.again)
		if routes, err = r.serve(ctx, engine, to, theirs); err != nil {
			return err
		}
	}
	if !leads {
		theirs.sure = false // another replica sends them meanwhile
		return nil
	}
	if theirs.Gateway == "" {
		routes = nil // there is nothing that would lead to them
	}
	ours, omitted, err := bounded(routes)
	if err != nil {
		return err
	}
	theirs.omitted = omitted
	if ours.Digest() == theirs.Digest && (len(routes) == 0 || !theirs.expiring()) {
		return r.setPublic(ctx, engine, to, theirs)
	}
	theirs.sure = false // until it has answered
	if theirs.RoutesState, err = control.PutRoutes(ctx, ours); err != nil {
		return err
	}
	theirs.asked, theirs.again = time.Now(), hostsSoon
	theirs.sure, theirs.sent, theirs.due = true, time.Now(), sentAtLeast-rand.N(sentAtLeast/4) //nolint:gosec // spreading load needs no secrecy
	r.Log.Info().Int("routes", len(ours.Routes)).Int("omitted", ours.Omitted).Msg("reported the Apps' hosts to the control plane")
	return r.setPublic(ctx, engine, to, theirs)
}

// serve passes public requests on by the routes that there are now, and returns these. Every
// replica does: public streams come to all of them.
func (r *Registrar) serve(ctx context.Context, engine *app.Engine, to access, theirs *knownRoutes) (routes []ingress.Route, err error) {
	if theirs.met || to.closed() {
		if err := r.setPublic(ctx, engine, to, theirs); err != nil {
			return nil, err
		}
	}
	theirs.ours = nil
	if !to.closed() {
		if routes, err = engine.Routes(ctx); err != nil {
			return nil, err
		}
		theirs.ours = ingress.RoutesByApp(routes)
	}
	theirs.secrets = slices.ContainsFunc(routes, func(r ingress.Route) bool { return len(r.Secrets) > 0 })
	if theirs.met || to.closed() || r.Public.Known() { // else the hosts below the gateway's domain are not known yet
		backends := backendsOf(routes)
		for i := range backends {
			backends[i].AccessLog = r.Policy.Names(runnerapi.AccessLogCall, backends[i].Namespace)
		}
		r.Public.Set(backends)
	}
	return routes, nil
}

// backendsOf returns where the routes lead.
func backendsOf(routes []ingress.Route) []gateway.Route {
	backends := make([]gateway.Route, 0, len(routes))
	for _, to := range routes {
		if to.Refused {
			continue
		}
		backends = append(backends, gateway.Route{
			Host: to.Host, Path: to.Path, PathType: to.PathType, Pattern: to.Pattern, Conditions: to.Conditions,
			Addresses: to.Addresses, Endpoint: to.Endpoint, HTTP2: to.HTTP2, Created: to.Created, Name: to.Name, Order: to.Order, Within: to.Within, Visitors: to.Visitors,
			Backends: to.Backends, Filters: to.Filters, Limited: to.Limited,
			Protocol: to.Protocol, Port: to.Port, Proxied: to.Proxied, Idle: to.Idle,
			Namespace: to.App.Namespace, App: to.App.Name,
		})
	}
	return backends
}

// bounded returns as many routes as may be sent, in order, and those that are left out, each with
// the reason. Namespaces take turns, so that one with many routes pushes out its own alone. A route
// that the control plane would not take is left out, because it would refuse all with it.
func bounded(routes []ingress.Route) (req controlapi.RoutesRequest, omitted []ingress.Route, err error) {
	encoded, size := make(map[int]controlapi.Route, min(len(routes), controlapi.MaxRoutes)), 0
	full, unfit := map[string]bool{}, map[int]bool{} // namespaces of which a route had no room; routes
	routes = distinct(routes)
	for _, i := range inTurns(routes) {
		out := sentRoute(routes[i])
		if unfit[i] = out.Fits() != nil; unfit[i] {
			continue
		}
		text, err := json.Marshal(out)
		if err != nil {
			return req, nil, fmt.Errorf("encode a route: %w", err)
		}
		if full[out.Namespace] || len(encoded) == controlapi.MaxRoutes || size+len(text)+1 > controlapi.MaxRoutesBytes {
			full[out.Namespace] = true
			continue
		}
		size += len(text) + 1
		encoded[i] = out
	}
	req.Routes = make([]controlapi.Route, 0, len(encoded))
	for i, r := range routes {
		if out, sent := encoded[i]; sent {
			req.Routes = append(req.Routes, out)
			continue
		}
		if r.Reason = omittedReason; unfit[i] {
			r.Reason = unfitReason
		}
		omitted = append(omitted, r)
	}
	req.Omitted = len(omitted)
	return req, omitted, nil
}

// distinct returns the routes that the control plane can tell apart: it knows nothing of
// conditions. Of several at one path, the first that is not ready stands for all, or else the
// first.
func distinct(routes []ingress.Route) []ingress.Route {
	type key struct {
		host, path, pathType, namespace, app, service, protocol string
		port                                                    int32 // of a public port
	}
	kept, at := make([]ingress.Route, 0, len(routes)), make(map[key]int, len(routes))
	for _, r := range routes {
		out := sentRoute(r)
		k := key{out.Host, out.Path, out.PathType, out.Namespace, out.App, out.Service, out.Protocol, 0}
		if out.Protocol != "" {
			k.port = out.Port
		}
		switch had, seen := at[k]; {
		case !seen:
			at[k], kept = len(kept), append(kept, r)
		case kept[had].Ready && !r.Ready:
			kept[had] = r
		}
	}
	return kept
}

// inTurns returns the indices of routes: the first route of each namespace, then the second of
// each, and so on.
func inTurns(routes []ingress.Route) []int {
	turn, turns := make([]int, len(routes)), map[string]int{}
	order := make([]int, len(routes))
	for i, r := range routes {
		order[i], turn[i] = i, turns[r.App.Namespace]
		turns[r.App.Namespace]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(turn[a], turn[b]) })
	return order
}

// sentRoute returns a route as the control plane has it. A regular expression is a type of path
// that is the agent's own.
func sentRoute(r ingress.Route) controlapi.Route {
	path, pathType := r.Path, r.PathType
	if r.Pattern != nil {
		pathType = string(networkingv1.PathTypeImplementationSpecific)
		if !strings.HasPrefix(path, "/") {
			path = "/"
		}
	}
	return controlapi.Route{
		Host: r.Host, Path: path, PathType: pathType, TLS: r.TLS,
		Namespace: r.App.Namespace, App: r.App.Name, Service: r.Service, Port: r.Port, Ready: r.Ready, Reason: r.Reason,
		Endpoint: r.Endpoint, Protocol: r.Protocol, PublicPort: r.PublicPort,
	}
}

// sayRefused logs why the control plane refused the routes; they are sent again when they
// change. It leaves out a refusal of the agent itself, which the heartbeat reports.
func (r *Registrar) sayRefused(err error) {
	if controlapi.Refused(err) {
		r.Log.Debug().Err(err).Msg("the control plane did not accept the routes")
		return
	}
	r.Log.Error().Err(err).Msg("the control plane refused the routes; sending them again when they change")
}
