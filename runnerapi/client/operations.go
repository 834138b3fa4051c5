package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Operations are the calls about commands that were accepted.
type Operations struct{ *core }

// Get returns the outcome of a command, by the operation ID in the command's answer.
func (o Operations) Get(ctx context.Context, id string) (runnerapi.Operation, error) {
	return fetch[runnerapi.Operation](ctx, o.core, newRequest("get-operation", id))
}
