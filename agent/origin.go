package agent

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// clusterTimeout bounds finding out the agent's cluster when the agent must not wait for it. Until
// the Kubernetes API responds, the control plane refuses the agent's calls and tunnel, and the
// agent retries.
const clusterTimeout = 10 * time.Second

// origin returns where this agent's calls come from, so that the control plane notices an identity
// that was copied to another cluster.
func (a *Agent) origin() controlapi.Origin {
	return controlapi.Origin{ClusterUID: a.knownCluster(), Instance: a.replica}
}

// knownCluster returns the UID of the agent's cluster, or empty as long as it is not known.
func (a *Agent) knownCluster() string {
	if uid := a.cluster.Load(); uid != nil {
		return *uid
	}
	return ""
}

// learnCluster asks for the cluster's UID, once: it is the same for the cluster's
// whole life.
func (a *Agent) learnCluster(ctx context.Context) (string, error) {
	if uid := a.knownCluster(); uid != "" {
		return uid, nil
	}
	uid, err := a.kube.ClusterUID(ctx)
	if err == nil {
		a.cluster.Store(&uid)
	}
	return uid, err
}

// tryCluster is like learnCluster and may fail.
func (a *Agent) tryCluster(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if _, err := a.learnCluster(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn().Err(err).Msg("the cluster's UID could not be read; it is tried again")
	}
}

// isCloned reports whether the control plane knows this identity as that of another cluster's
// agent.
func isCloned(err error) bool {
	var e *controlapi.Error
	return errors.As(err, &e) && e.Code == controlapi.CodeIdentityCloned
}
