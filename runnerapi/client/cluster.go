package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Cluster are the calls about the cluster as a whole.
type Cluster struct{ *core }

// Get describes the agent's cluster.
func (c Cluster) Get(ctx context.Context) (runnerapi.Cluster, error) {
	return fetch[runnerapi.Cluster](ctx, c.core, newRequest("get-cluster"))
}
