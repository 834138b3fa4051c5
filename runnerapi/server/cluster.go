package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type clusterOutput struct{ Body runnerapi.Cluster }

// clusterCalls are the calls about the cluster.
type clusterCalls struct {
	*calls
	cluster backend.Cluster
}

func (s *clusterCalls) routes() {
	register(s.calls, operation("get-cluster", "Cluster", "Describe the cluster",
		"Nodes, pods, capacity and use.", 0), func(ctx context.Context, _ *struct{}) (*clusterOutput, error) {
		cluster, err := s.cluster.Get(ctx)
		return &clusterOutput{Body: cluster}, err
	})
}
