package routes

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// access is whether the cluster owner lets the public in.
type access struct {
	off, fix string // why not, and what the owner can do about it
}

func (a access) closed() bool { return a.off != "" }

// publicAccess reports whether the public is let in; known is false while the policy is not known.
func (r *Registrar) publicAccess() (to access, known bool) {
	if !r.Enabled {
		return access{"the owner of the cluster has turned ingress sync off",
			"have the owner set ENABLE_INGRESS_SYNC=true and restart the agent"}, true
	}
	reason, known := r.Policy.Public()
	if reason != "" {
		return access{reason, "have the owner look at public in " + r.Policy.State().Source}, true
	}
	return access{}, known
}

// setPublic tells Apps and the policy about the gateway.
func (r *Registrar) setPublic(ctx context.Context, engine *app.Engine, to access, theirs *knownRoutes) error {
	state := theirs.RoutesState
	public := publicOf(to, state)
	for _, left := range theirs.omitted {
		if gatewaywire.IsPort(left.Protocol) {
			public.Ports = append(public.Ports, ingress.PublicPort{App: left.App, Protocol: left.Protocol, Port: left.Port, Reason: left.Reason})
			continue
		}
		if _, known := public.Hosts[left.Host]; !known {
			public.Hosts[left.Host] = ingress.PublicHost{Reason: left.Reason}
		}
	}
	public.Routes = theirs.ours
	given := public.Given
	if state.Gateway == "" {
		given = nil
	}
	r.Policy.SetPublicHost(given)
	return engine.SetPublic(ctx, public)
}

// omittedReason is why a host is not served whose routes were not sent.
var omittedReason = fmt.Sprintf("the cluster has more than %d public routes, and the namespace more than its share; remove some of its hosts or paths", controlapi.MaxRoutes)

// unfitReason is why a host is not served whose route has a host or a path that Kubernetes takes
// and the control plane does not.
const unfitReason = "the host or a path is too long: a host has at most 253 characters, and a path 1024"

// publicHost returns what Apps are told about a host.
func publicHost(h controlapi.HostStatus) ingress.PublicHost {
	host := ingress.PublicHost{
		Served: h.Reach == controlapi.ReachReady, Pending: h.Reach == controlapi.ReachPending, Given: h.Proof == controlapi.ProofGiven,
		Reason: printable.Text(h.Reason),
	}
	if h.Served && h.Certificate == controlapi.CertificatePending {
		host.Pending, host.Reason = true, "wait for the certificate, which the gateway obtains"
	}
	return host
}

// publicOf returns what Apps are told about the gateway.
func publicOf(to access, state controlapi.RoutesState) ingress.Public {
	hosts := make(map[string]ingress.PublicHost, len(state.Hosts))
	for _, h := range state.Hosts {
		hosts[h.Host] = publicHost(h)
	}
	ports := make([]ingress.PublicPort, 0, len(state.Ports))
	for _, p := range state.Ports {
		ports = append(ports, ingress.PublicPort{
			App: runnerapi.Key{Namespace: p.Namespace, Name: p.App}, Protocol: p.Protocol, Port: p.Port, PublicPort: p.PublicPort, Served: p.Served, Reason: printable.Text(p.Reason),
		})
	}
	return ingress.Public{
		Off: to.off, Fix: to.fix, Domain: state.Gateway, Address: controlapi.ProofTarget(state.Agent, state.Gateway), Hosts: hosts, Ports: ports,
		Given: func(k runnerapi.Key) string {
			return controlapi.GivenHost(k.Name, k.Namespace, state.Agent, state.Gateway)
		},
	}
}
