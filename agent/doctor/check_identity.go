package doctor

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

// identity looks for the agent's identity where the agent keeps it.
func (a *admission) identity(ctx context.Context) []Finding {
	store, err := a.store()
	if err != nil {
		return failure(err, "")
	}
	if store == nil {
		return skipped("it is in the cluster, which is not reached")
	}
	parts, _, err := store.Load(ctx)
	switch {
	case err != nil:
		return failure(err, "run doctor as the agent's user, or as root")
	case parts == nil:
		return ok("none yet in " + store.String() + "; the agent registers with its token")
	}
	id, err := identity.Decode(parts)
	if request, _ := identity.RequestIn(parts); err != nil && request != nil {
		a.asked = request.Key.Public()
		return ok("asked for, not answered yet, in " + store.String())
	}
	if err != nil {
		return warning(store.String()+" is damaged: "+err.Error(), "give the agent a token: it registers again and gets the same ID")
	}
	a.id, a.endpoint = id, id.Tunnel
	until := id.NotAfter().UTC().Format(time.RFC3339)
	if a.Now().After(id.NotAfter()) {
		return warning("agent "+id.AgentID+", certificate expired at "+until, "start the agent: it proves its old key and gets a new one")
	}
	return ok("agent " + id.AgentID + ", certificate until " + until)
}

// store returns where the agent keeps its identity; nil when that cannot be reached.
func (a *admission) store() (identity.Store, error) {
	if a.Config.StateDir != "" {
		return identity.File{Dir: a.Config.StateDir}, nil
	}
	if a.Kubernetes == nil {
		return nil, nil
	}
	client, err := kube.New(a.Kubernetes, kube.Options{Namespace: a.Config.Namespace})
	if err != nil {
		return nil, err
	}
	return client.IdentityStore(), nil
}
