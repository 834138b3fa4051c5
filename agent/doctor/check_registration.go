package doctor

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

// registration asks whether the control plane accepts this agent.
func (a *admission) registration(ctx context.Context) []Finding {
	switch {
	case a.id == nil:
		return skipped("this agent has not registered yet")
	case a.Now().After(a.id.NotAfter()):
		return skipped("the agent's certificate has expired; it gets a new one when it starts")
	}
	client, failed := a.controlPlane(ctx)
	if failed != nil {
		return failed
	}
	defer client.Close()
	if err := client.CheckIdentity(ctx); err != nil {
		return failure(err, "register again: `pipeops-controlplane token create`")
	}
	return ok("the control plane accepts agent " + a.id.AgentID)
}

// controlPlane returns a client that calls the control plane as this agent does, or why there is
// none.
func (a *admission) controlPlane(ctx context.Context) (*controlapi.Client, []Finding) {
	k, err := kube.New(a.cluster.restConfig(), kube.Options{Namespace: a.Config.Namespace})
	if err != nil {
		return nil, failure(err, fixConfiguration)
	}
	from := controlapi.Origin{}
	if from.ClusterUID, err = k.ClusterUID(ctx); err != nil {
		return nil, failure(err, "let the agent read the namespace kube-system")
	}
	client, err := a.network.client(from)
	if err != nil {
		return nil, failure(err, fixConfiguration)
	}
	return client, nil
}
