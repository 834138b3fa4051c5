package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

// clusterTimeout bounds finding out the agent's cluster when the agent must not wait for it. Until
// the Kubernetes API responds, the control plane refuses the agent's calls and tunnel, and the
// agent retries.
const clusterTimeout = 10 * time.Second

// clusterID is the UID of the agent's cluster, once it is known.
type clusterID struct {
	kube    *kube.Client
	replica string
	log     zerolog.Logger
	uid     atomic.Pointer[string]
}

// origin returns where this agent's calls come from, so that the control plane notices an identity
// that was copied to another cluster.
func (c *clusterID) origin() controlapi.Origin {
	return controlapi.Origin{ClusterUID: c.known(), Instance: c.replica}
}

// known returns the UID of the agent's cluster, or empty as long as it is not known.
func (c *clusterID) known() string {
	if uid := c.uid.Load(); uid != nil {
		return *uid
	}
	return ""
}

// learn asks for the cluster's UID, once: it is the same for the cluster's
// whole life.
func (c *clusterID) learn(ctx context.Context) (string, error) {
	if uid := c.known(); uid != "" {
		return uid, nil
	}
	uid, err := c.kube.ClusterUID(ctx)
	if err == nil {
		c.uid.Store(&uid)
	}
	return uid, err
}

// try is like learn and may fail.
func (c *clusterID) try(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	if _, err := c.learn(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn().Err(err).Msg("failed to read the cluster's UID; retrying")
	}
}
