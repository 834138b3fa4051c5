package authn

import (
	"context"
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// SameCluster refuses an agent's identity in another cluster than the agent's, and informs the
// operator. It also refuses an agent that does not state its cluster.
func (p *Authenticator) SameCluster(ctx context.Context, id string, from controlapi.Origin) error {
	a, err := p.Store.Agent(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil // an unknown agent is refused elsewhere
	}
	if err != nil {
		return err
	}
	return p.ofCluster(ctx, a, from)
}

// ofCluster checks that a call comes from the cluster of an agent that was read already.
func (p *Authenticator) ofCluster(ctx context.Context, a store.Agent, from controlapi.Origin) error {
	switch from.ClusterUID {
	case a.ClusterUID:
		return nil
	case "":
		return errNoCluster
	}
	p.Clones.Seen(ctx, a.ID, announce.Clone{ClusterUID: from.ClusterUID, Instance: from.Instance, Address: from.Address})
	return cloned(a, from.ClusterUID)
}

// errNoCluster is for a call that could come from a copy in any cluster. The agent learns its
// cluster's UID from the Kubernetes API, and comes again.
var errNoCluster = problem.Errorf(problem.BadRequest, "let the agent read the namespace kube-system; it tries again by itself",
	"the agent does not report its cluster")

func cloned(a store.Agent, uid string) *problem.Error {
	return controlapi.Errorf(controlapi.CodeIdentityCloned,
		"give the copy its own identity: set AGENT_TOKEN to a new token (`pipeops-controlplane token create`) and CLUSTER_NAME to another name, or delete "+
			"the copied identity (the Secret pipeops-agent-identity, or identity.json in PIPEOPS_STATE_DIR); if the other cluster is gone for good, "+
			"`pipeops-controlplane agent revoke "+a.ID+"` frees its name",
		"this is the identity of agent %s (%s), which is in cluster %s; here it is in cluster %s, as a copy",
		a.Name, a.ID, controlapi.ShortUID(a.ClusterUID), controlapi.ShortUID(uid))
}
