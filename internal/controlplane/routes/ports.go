package routes

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// claimPorts keeps an agent's claims to public ports in step with its routes. A route whose host is
// not its App's claims nothing.
func (r *Registry) claimPorts(ctx context.Context, tx *store.Tx, agentID string, routes []store.Route) error {
	all, err := tx.PortClaims(ctx)
	if err != nil {
		return err
	}
	var had, others, wanted []store.PortClaim
	for _, c := range all {
		if c.AgentID == agentID {
			had = append(had, c)
		} else {
			others = append(others, c)
		}
	}
	for _, route := range routes {
		if gatewaywire.IsPort(route.Protocol) && r.domain != "" && route.Host == controlapi.GivenHost(route.App, route.Namespace, agentID, r.domain) {
			wanted = append(wanted, store.PortClaim{
				AgentID: agentID, Namespace: route.Namespace, App: route.App, Protocol: route.Protocol, Port: int(route.Port),
				Host: route.Host, Wanted: route.PublicPort,
			})
		}
	}
	if len(had)+len(wanted) == 0 {
		return nil
	}
	claims := ports.Follow(had, wanted, r.now())
	if err := tx.PutPortClaims(ctx, agentID, claims); err != nil {
		return err
	}
	return choose(ctx, tx, ports.Choose(append(others, claims...), agentID, r.open))
}

func choose(ctx context.Context, tx *store.Tx, changed []store.PortClaim) error {
	for _, c := range changed {
		if err := tx.ChoosePort(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// portsOf returns what an agent is told of its public ports. One that has none yet gets it now, if
// there is one.
func (r *Registry) portsOf(ctx context.Context, agentID string) (list []controlapi.PortStatus, err error) {
	claims, err := r.store.PortClaims(ctx)
	if err != nil {
		return nil, err
	}
	if len(ports.Choose(claims, agentID, r.open)) > 0 {
		err := r.store.Update(ctx, func(tx *store.Tx) error {
			if claims, err = tx.PortClaims(ctx); err != nil {
				return err
			}
			return choose(ctx, tx, ports.Choose(claims, agentID, r.open))
		})
		if err != nil {
			return nil, err
		}
		if claims, err = r.store.PortClaims(ctx); err != nil {
			return nil, err
		}
	}
	for _, p := range ports.Settle(claims, r.open) {
		if p.AgentID != agentID || len(list) == controlapi.MaxRoutes {
			continue
		}
		status := controlapi.PortStatus{
			Namespace: p.Namespace, App: p.App, Protocol: p.Protocol, Port: int32(p.Port), PublicPort: int32(p.Public()), //nolint:gosec // ports
			Served: p.Served, Reason: p.Reason,
		}
		if status.Served && r.Listens != nil {
			if reason := r.Listens(p.Protocol, p.Public()); reason != "" {
				status.Served, status.Reason = false, reason
			}
		}
		list = append(list, status)
	}
	return list, nil
}
