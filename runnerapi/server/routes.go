package server

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
)

type routeListOutput struct{ Body runnerapi.RouteList }

// routeCalls are the calls about public routes.
type routeCalls struct {
	*calls
	public backend.Routes
}

func (s *routeCalls) routes() {
	register(s.calls, operation("list-routes", "Cluster", "List the public routes",
		"The hosts and paths at which the public reaches what the agent manages, through the control plane's gateway: "+
			"whether each is served, and why not. See docs/operator/gateway.md.", 0), s.listRoutes)
	s.traffic()
}

func (s *routeCalls) listRoutes(ctx context.Context, in *struct{ params.Page }) (*routeListOutput, error) {
	items, err := s.public.List(ctx)
	items = guard.Seen(ctx, s.guard, items, func(r runnerapi.Route) string { return r.Namespace })
	items, rest, err := paged(in.Page, items, err, func(o runnerapi.Route) string {
		return keyOf(o.Namespace, o.App, o.Host, o.Path, o.PathType, o.Service, o.Protocol, strconv.Itoa(int(o.Port)))
	})
	return &routeListOutput{Body: runnerapi.RouteList{Items: items, Page: rest}}, err
}
