package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Routes are the calls about hosts that the public can reach.
type Routes struct{ *core }

// List reads the public routes of an agent.
func (r Routes) List(ctx context.Context) ([]runnerapi.Route, error) {
	return pages(ctx, r.core, newRequest("list-routes"), func(l runnerapi.RouteList) ([]runnerapi.Route, runnerapi.Page) { return l.Items, l.Page })
}
