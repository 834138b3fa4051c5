package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// JoinCommand returns how a machine becomes a worker of the cluster.
func (c *Client) JoinCommand(ctx context.Context) (runnerapi.JoinCommand, error) {
	var command runnerapi.JoinCommand
	_, err := c.call(ctx, newRequest("get-join-command"), &command)
	return command, err
}

// JoinToken returns the token for that, where the policy names the command.
func (c *Client) JoinToken(ctx context.Context) (runnerapi.JoinToken, error) {
	var token runnerapi.JoinToken
	_, err := c.call(ctx, newRequest("get-join-token"), &token)
	return token, err
}
