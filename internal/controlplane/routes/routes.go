// Package routes keeps the routes that agents send, and their claims to hosts. What may be served
// is decided in package hosts.
package routes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Registry keeps the routes that agents send. It has a part of controlapi.Backend.
type Registry struct {
	store     *store.Store
	directory discovery.Directory
	domain    string // below which Apps have hosts; empty without a gateway
	open      ports.Open
	now       func() time.Time
	// OnRoutes is called when routes have changed; nil without a gateway.
	OnRoutes func()
	// Certificate returns the state of a host's certificate, and why it failed; nil without a
	// gateway.
	Certificate func(ctx context.Context, host string) (state, reason string)
	// Reach returns whether visitors of an agent's host get the App's answer, and why not; nil
	// without a gateway.
	Reach func(agentID, host string) (state, reason string)
	// Listens returns why the gateway does not listen at a port that an App has; nil if others
	// serve the public.
	Listens func(protocol string, port int) (reason string)
}

// New returns the registry of routes; domain is the gateway's, and open are the ports that the
// operator has opened to Apps.
func New(s *store.Store, d discovery.Directory, domain string, open ports.Open, now func() time.Time) *Registry {
	return &Registry{store: s, directory: d, domain: domain, open: open, now: now}
}

// Routes implements controlapi.Backend.
func (r *Registry) Routes(ctx context.Context, agentID string) (controlapi.RoutesState, error) {
	set, err := r.store.RouteSet(ctx, agentID)
	if err != nil {
		return controlapi.RoutesState{}, err
	}
	if r.now().Sub(set.At) >= gateway.RoutesTTL {
		set.Digest = "" // they have expired: the agent sends them again
	}
	return r.routesState(ctx, agentID, set.Digest)
}

// routesState returns what an agent is told of its routes.
func (r *Registry) routesState(ctx context.Context, agentID, digest string) (controlapi.RoutesState, error) {
	state := controlapi.RoutesState{Digest: digest, Gateway: r.domain}
	if state.Gateway == "" {
		return state, nil
	}
	agent, err := r.store.Agent(ctx, agentID)
	if errors.Is(err, store.ErrNotFound) {
		return state, authn.UnknownAgent(agentID)
	}
	if err != nil {
		return state, err
	}
	state.Agent = agent.ID
	if state.Ports, err = r.portsOf(ctx, agentID); err != nil {
		return state, err
	}
	claims, err := r.store.ClaimsBeside(ctx, agentID)
	if err != nil {
		return state, err
	}
	passed, err := r.store.PassedOf(ctx, agentID)
	if err != nil {
		return state, err
	}
	for claims := range hosts.ByHost(claims) {
		if len(state.Hosts) < controlapi.MaxRoutes {
			state.Hosts = append(state.Hosts, r.hostStatus(ctx, agentID, claims, passed[claims[0].Host] != 0, r.now()))
		}
	}
	return state, nil
}

// hostStatus returns what an agent is told about a host. claims are all claims to it. The gateway
// has no certificate of one that is passed on with its TLS.
func (r *Registry) hostStatus(ctx context.Context, agentID string, claims []store.HostClaim, passed bool, now time.Time) controlapi.HostStatus {
	status := hosts.Status(agentID, claims[0].Host, claims, now)
	if !status.Served || r.Certificate == nil {
		return status
	}
	if !passed {
		certificate, reason := r.Certificate(ctx, status.Host)
		status.Certificate, status.Reason = certificate, cmp.Or(reason, status.Reason)
	}
	switch {
	case !passed && status.Certificate != controlapi.CertificateReady:
	case r.Reach == nil || strings.HasPrefix(status.Host, "*."): // a wildcard has no host to try
		status.Reach = controlapi.ReachReady
	default:
		status.Reach, status.Reason = r.Reach(agentID, status.Host)
	}
	return status
}

// PutRoutes implements controlapi.Backend. Runners are informed if the agent's hosts have changed.
// That a route became ready they learn from app.healthy.
func (r *Registry) PutRoutes(ctx context.Context, agentID string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
	now := r.now()
	set := store.RouteSet{Digest: req.Digest(), Omitted: req.Omitted, At: now}
	err := r.store.Update(ctx, func(tx *store.Tx) error {
		a, err := authn.AdmittedAgent(ctx, tx, agentID) // again: the call was allowed before
		if err != nil {
			return err
		}
		known, err := tx.RouteSet(ctx, agentID)
		if err != nil {
			return err
		}
		if known.Digest == set.Digest { // a sign of life, or sent again because the answer was lost
			return tx.HeardRoutes(ctx, agentID, now)
		}
		had, err := tx.RoutesOf(ctx, agentID)
		if err != nil {
			return err
		}
		routes := routesOf(req.Routes, had, now)
		if err := tx.PutRoutes(ctx, agentID, routes, set); err != nil {
			return err
		}
		if err := r.claimHosts(ctx, tx, a, routes); err != nil {
			return err
		}
		if err := r.claimPorts(ctx, tx, a.ID, routes); err != nil {
			return err
		}
		if slices.Equal(hostsOf(had), hostsOf(routes)) {
			return nil
		}
		return r.directory.Write(ctx, tx, announce.AgentUpdated, a, now)
	})
	if err != nil {
		return controlapi.RoutesState{}, err
	}
	if r.OnRoutes != nil {
		r.OnRoutes()
	}
	return r.routesState(ctx, agentID, set.Digest)
}

// claimHosts keeps an agent's claims to hosts in step with its routes. A route that cannot be
// carried claims nothing: its host needs no certificate.
func (r *Registry) claimHosts(ctx context.Context, tx *store.Tx, a store.Agent, routes []store.Route) error {
	now, domain := r.now(), r.domain
	routes = slices.DeleteFunc(slices.Clone(routes), func(r store.Route) bool { return !r.Carried() || gatewaywire.IsPort(r.Protocol) })
	had, err := tx.ClaimsOf(ctx, a.ID)
	if err != nil {
		return err
	}
	known := make(map[string]store.HostClaim, len(had))
	for _, c := range had {
		known[c.Host] = c
	}
	for _, host := range hostsOf(routes) {
		claim, was := known[host]
		delete(known, host)
		if was && (claim.Proof == hosts.Grant || !controlapi.WithinDomain(host, domain)) {
			continue
		}
		others, err := tx.ClaimsTo(ctx, host)
		if err != nil {
			return err
		}
		if was {
			claim = hosts.Renew(claim, a, routes, domain, others, now)
		} else {
			claim = hosts.Claim(a, host, routes, domain, others, now)
		}
		if err := tx.PutClaim(ctx, claim); err != nil {
			return err
		}
	}
	for host := range known {
		if err := tx.DeleteClaim(ctx, a.ID, host); err != nil {
			return err
		}
	}
	return nil
}

// routesOf returns the routes that an agent sent. An existing route keeps its time.
func routesOf(sent []controlapi.Route, had []store.Route, now time.Time) []store.Route {
	type key struct {
		host, path, pathType, namespace, app, service, protocol string
		port                                                    int32 // of a public port
	}
	keyOf := func(host, path, pathType, namespace, app, service, protocol string, port int32) key {
		if protocol == "" {
			port = 0
		}
		return key{host, path, pathType, namespace, app, service, protocol, port}
	}
	since := make(map[key]time.Time, len(had))
	for _, r := range had {
		since[keyOf(r.Host, r.Path, r.PathType, r.Namespace, r.App, r.Service, r.Protocol, r.Port)] = r.Since
	}
	routes := make([]store.Route, 0, len(sent))
	for _, r := range sent {
		at, known := since[keyOf(r.Host, r.Path, r.PathType, r.Namespace, r.App, r.Service, r.Protocol, r.Port)]
		if !known {
			at = now
		}
		routes = append(routes, store.Route{
			Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS, Namespace: r.Namespace, App: r.App, Service: r.Service,
			Port: r.Port, Ready: r.Ready, Reason: printable.Text(r.Reason), Endpoint: r.Endpoint, Protocol: r.Protocol, PublicPort: int(r.PublicPort), Since: at,
		})
	}
	return routes
}

func hostsOf(routes []store.Route) []string {
	hosts := make([]string, 0, len(routes))
	for _, r := range routes {
		if !gatewaywire.IsPort(r.Protocol) {
			hosts = append(hosts, r.Host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}
