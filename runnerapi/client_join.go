package runnerapi

import (
	"context"
	"net/http"
)

// JoinCommand returns how a machine becomes a worker of the cluster.
func (c *Client) JoinCommand(ctx context.Context) (JoinCommand, error) {
	var command JoinCommand
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/cluster/join"}, &command)
	return command, err
}

// JoinToken returns the token for that, where the policy names the command.
func (c *Client) JoinToken(ctx context.Context) (JoinToken, error) {
	var token JoinToken
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/cluster/join/token"}, &token)
	return token, err
}
