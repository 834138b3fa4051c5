package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Routes are the calls about hosts that the public can reach.
type Routes struct{ *core }

// List reads the public routes of an agent.
func (r Routes) List(ctx context.Context) ([]runnerapi.Route, error) {
	list, err := fetch[runnerapi.RouteList](ctx, r.core, newRequest("list-routes"))
	return list.Items, err
}
