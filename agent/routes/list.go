package routes

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// List implements the call about public routes.
type List struct {
	registrar *Registrar
	control   *controlapi.Client
	engine    *app.Engine
}

var _ backend.Routes = List{}

// List returns the implementation of the call about public routes.
func (r *Registrar) List(control *controlapi.Client, engine *app.Engine) List {
	return List{r, control, engine}
}

// askTimeout is how long the control plane may take to say which routes it serves.
const askTimeout = 5 * time.Second

// List implements backend.Routes. The control plane is asked each time: only the
// replica that leads follows what it does.
func (l List) List(ctx context.Context) ([]runnerapi.Route, error) {
	routes, state, unknown, err := l.known(ctx)
	if err != nil {
		return nil, err
	}
	to, _ := l.registrar.publicAccess()
	list := make([]runnerapi.Route, len(routes))
	for i, r := range routes {
		if gatewaywire.IsPort(r.Protocol) {
			list[i] = portOf(r, to, state, unknown)
			continue
		}
		list[i] = routeOf(r, to, state, unknown)
	}
	return list, nil
}

// known returns the routes, and what the control plane serves of them. unknown is why it did not
// say.
func (l List) known(ctx context.Context) (routes []ingress.Route, state controlapi.RoutesState, unknown, err error) {
	if routes, err = l.engine.Routes(ctx); err != nil {
		return nil, state, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if state, unknown = l.control.Routes(limited); unknown != nil {
		l.registrar.Log.Debug().Err(unknown).Msg("the control plane did not report which routes it serves")
	}
	return routes, state, unknown, nil
}

// modeOf returns how requests come to a host that the control plane knows.
func modeOf(h controlapi.HostStatus) runnerapi.RouteMode {
	if h.Mode == controlapi.ModeDirect {
		return runnerapi.RouteDirect
	}
	return runnerapi.RouteTunnel
}

// routeOf returns a route as Runners see it. unknown is why the state is not known.
func routeOf(r ingress.Route, to access, state controlapi.RoutesState, unknown error) runnerapi.Route {
	out := runnerapi.Route{
		URL: "https://" + r.Host + r.Path, Host: r.Host, Path: r.Path, PathType: r.PathType, Conditions: r.Conditions.String(), Namespace: r.App.Namespace, App: r.App.Name,
		Service: r.Service, Port: r.Port, State: runnerapi.RouteSuspended, Mode: runnerapi.RouteTunnel, Warnings: r.Warnings,
		Backends: r.Shares, Filters: r.FilterTypes,
	}
	if r.Protocol == gatewaywire.TLS {
		out.Protocol, out.URL = r.Protocol, controlapi.PassedURL(r.Host)
	}
	host, known := hostStatus(state, r.Host)
	out.Proof, out.Certificate = host.Proof, runnerapi.CertificateState(host.Certificate)
	if known {
		out.Mode = modeOf(host)
	}
	out.ModeReason = printable.Text(host.ModeReason)
	for _, record := range controlapi.Proofs(state.Agent, r.Host, state.Gateway) {
		out.Records = append(out.Records, runnerapi.DNSRecord(record))
	}
	switch {
	case to.closed():
		out.Reason = to.off
	case unknown != nil:
		out.Reason = "the control plane cannot be asked whether it serves the host"
	case state.Gateway == "":
		out.Reason = "the control plane has no gateway"
	case r.Port == 0 && !r.Ready:
		out.Reason = r.Reason
	case !known:
		out.Reason = "the control plane has not heard of the host yet"
	case !host.Served:
		out.Reason = printable.Text(host.Reason)
	case !r.Ready:
		out.Reason = r.Reason
	default:
		out.State, out.Reason = runnerapi.RouteServing, printable.Text(host.Reason)
	}
	return out
}

func hostStatus(state controlapi.RoutesState, host string) (controlapi.HostStatus, bool) {
	for _, h := range state.Hosts {
		if h.Host == host {
			return h, true
		}
	}
	return controlapi.HostStatus{}, false
}

// portOf returns the route of a public port as Runners see it.
func portOf(r ingress.Route, to access, state controlapi.RoutesState, unknown error) runnerapi.Route {
	out := runnerapi.Route{
		Host: r.Host, Path: r.Path, PathType: r.PathType, Namespace: r.App.Namespace, App: r.App.Name, Service: r.Service, Port: r.Port,
		Protocol: r.Protocol, State: runnerapi.RouteSuspended, Mode: runnerapi.RouteTunnel, Reason: "the control plane has not heard of the port yet",
	}
	port := controlapi.PortStatus{}
	for _, p := range state.Ports {
		if p.Namespace == r.App.Namespace && p.App == r.App.Name && p.Port == r.Port && p.Protocol == r.Protocol {
			port, out.Reason = p, printable.Text(p.Reason)
		}
	}
	out.PublicPort, out.URL = port.PublicPort, controlapi.PortURL(r.Protocol, r.Host, int(port.PublicPort))
	switch {
	case to.closed():
		out.Reason = to.off
	case unknown != nil:
		out.Reason = "the control plane cannot be asked whether it serves the port"
	case state.Gateway == "":
		out.Reason = "the control plane has no gateway"
	case !port.Served:
	case !r.Ready:
		out.Reason = r.Reason
	default:
		out.State, out.Proof = runnerapi.RouteServing, controlapi.ProofGiven
	}
	return out
}
