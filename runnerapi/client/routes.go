package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ListRoutes reads the public routes of an agent.
func (c *Client) ListRoutes(ctx context.Context) ([]runnerapi.Route, error) {
	var list runnerapi.RouteList
	_, err := c.call(ctx, newRequest("list-routes"), &list)
	return list.Items, err
}
