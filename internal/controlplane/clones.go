package controlplane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// clonesKept is how many clones of one agent are distinguished.
	clonesKept = 8
	// cloneLife is how long one is shown after it was last seen.
	cloneLife = 24 * time.Hour
	// cloneNoted is how often it is written that one is still there.
	cloneNoted = time.Minute
)

// clones records other holders of an agent's identity, and announces each once.
type clones struct {
	store     *store.Store
	directory directory
	log       zerolog.Logger
	now       func() time.Time

	mu    sync.Mutex
	noted map[string]time.Time // by agent
}

func newClones(s *store.Store, d directory, cfg *Config) *clones {
	return &clones{store: s, directory: d, log: cfg.Log, now: cfg.Now, noted: map[string]time.Time{}}
}

// sameCluster refuses an agent's identity in another cluster than the agent's, and informs the
// operator. It also refuses an agent that does not state its cluster.
func (p *peers) sameCluster(ctx context.Context, id string, from controlapi.Origin) error {
	a, err := p.store.Agent(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil // an unknown agent is refused elsewhere
	}
	if err != nil {
		return err
	}
	return p.ofCluster(ctx, a, from)
}

// ofCluster is like sameCluster for an agent that was already read.
func (p *peers) ofCluster(ctx context.Context, a store.Agent, from controlapi.Origin) error {
	switch from.ClusterUID {
	case a.ClusterUID:
		return nil
	case "":
		return errNoCluster
	}
	p.clones.seen(ctx, a.ID, announce.Clone{ClusterUID: from.ClusterUID, Instance: from.Instance, Address: from.Address})
	return cloned(a, from.ClusterUID)
}

// errNoCluster is for a call that could come from a copy in any cluster. The agent learns its
// cluster's UID from the Kubernetes API, and comes again.
var errNoCluster = problem.Errorf(problem.BadRequest, "let the agent read the namespace kube-system; it tries again by itself",
	"the agent does not say in which cluster it is")

func cloned(a store.Agent, uid string) *problem.Error {
	return controlapi.Errorf(controlapi.CodeIdentityCloned,
		"give the copy an identity of its own: set AGENT_TOKEN to a new token (`pipeops-controlplane token create`) and CLUSTER_NAME to another name, or delete "+
			"the copied identity (the Secret pipeops-agent-identity, or identity.json in PIPEOPS_STATE_DIR); if the other cluster is gone for good, "+
			"`pipeops-controlplane agent revoke "+a.ID+"` frees its name",
		"this is the identity of agent %s (%s), which is in cluster %s; here it is in cluster %s, as a copy",
		a.Name, a.ID, controlapi.ShortUID(a.ClusterUID), controlapi.ShortUID(uid))
}

// seen notes a clone. That it could not be written is logged: the clone comes again.
func (c *clones) seen(ctx context.Context, agentID string, clone announce.Clone) {
	now := c.now()
	c.mu.Lock()
	fresh := now.Sub(c.noted[agentID]) >= cloneNoted
	if fresh {
		c.noted[agentID] = now
	}
	c.mu.Unlock()
	if !fresh {
		return
	}
	if err := c.write(ctx, agentID, clone, now); err != nil {
		c.log.Error().Err(err).Str("agent", agentID).Msg("a clone was not noted")
		c.mu.Lock()
		delete(c.noted, agentID)
		c.mu.Unlock()
	}
}

func (c *clones) write(ctx context.Context, agentID string, clone announce.Clone, now time.Time) error {
	var isNew bool
	err := c.store.Update(ctx, func(tx *store.Tx) error {
		a, err := tx.Agent(ctx, agentID)
		if errors.Is(err, store.ErrNotFound) || err == nil && a.Revoked() {
			return nil
		}
		if err != nil {
			return err
		}
		if a.Clones, isNew = withClone(a.Clones, clone, now); !isNew {
			return tx.SetClones(ctx, agentID, a.Clones)
		}
		if err := tx.SetClones(ctx, agentID, a.Clones); err != nil {
			return err
		}
		return c.directory.write(ctx, tx, announce.AgentCloned, a, now)
	})
	if err == nil && isNew {
		c.log.Warn().Str("agent", agentID).Str("otherCluster", clone.ClusterUID).Str("instance", clone.Instance).Str("from", clone.Address).
			Msg("an agent's identity is in use twice: somebody has copied it; `pipeops-controlplane agents show` tells more")
	}
	return err
}

// withClone puts a clone into the list, and reports whether it is a new one. Those that were not
// seen for long leave, and the one that was seen first when there are many.
func withClone(list []announce.Clone, clone announce.Clone, now time.Time) (all []announce.Clone, isNew bool) {
	clone.FirstSeen, clone.LastSeen = now, now
	all = slices.DeleteFunc(slices.Clone(list), func(c announce.Clone) bool { return now.Sub(c.LastSeen) > cloneLife })
	for i, c := range all {
		if c.ClusterUID == clone.ClusterUID && (c.ClusterUID != "" || c.Instance == clone.Instance) {
			clone.FirstSeen = c.FirstSeen
			all[i] = clone
			return all, false
		}
	}
	if len(all) >= clonesKept {
		all = all[1:]
	}
	return append(all, clone), true
}

// cleanIdentities drops requests for approval and clones that have had their time.
func (c *ControlPlane) cleanIdentities(ctx context.Context) error {
	now := c.cfg.Now()
	return errors.Join(c.store.ForgetEnrolments(ctx, now.Add(-enrolmentLife), now.Add(-denialLife)), c.forgetClones(ctx))
}

// forgetDuplicates drops what this process alone remembers.
func (c *ControlPlane) forgetDuplicates(ctx context.Context) error {
	for ctx.Err() == nil {
		c.registry.duplicates.forget(c.cfg.Now())
		retry.Wait(ctx, cleanEvery)
	}
	return nil
}

// forgetClones takes those off the agents that were not seen for long.
func (c *ControlPlane) forgetClones(ctx context.Context) error {
	agents, err := c.store.Agents(ctx)
	if err != nil {
		return err
	}
	now := c.cfg.Now()
	for _, a := range agents {
		if !slices.ContainsFunc(a.Clones, func(o announce.Clone) bool { return now.Sub(o.LastSeen) > cloneLife }) {
			continue
		}
		err := c.store.Update(ctx, func(tx *store.Tx) error {
			current, err := tx.Agent(ctx, a.ID)
			if err != nil {
				return err
			}
			current.Clones = slices.DeleteFunc(current.Clones, func(o announce.Clone) bool { return now.Sub(o.LastSeen) > cloneLife })
			if err := tx.SetClones(ctx, a.ID, current.Clones); err != nil || current.Revoked() {
				return err
			}
			return c.registry.directory.write(ctx, tx, announce.AgentUpdated, current, now)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
