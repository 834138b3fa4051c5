package agents

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
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

// Clones records other holders of an agent's identity, and announces each once.
type Clones struct {
	store     *store.Store
	directory discovery.Directory
	log       zerolog.Logger
	now       func() time.Time

	mu    sync.Mutex
	noted map[string]time.Time // by agent
}

// NewClones returns what records clones.
func NewClones(s *store.Store, d discovery.Directory, log zerolog.Logger, now func() time.Time) *Clones {
	return &Clones{store: s, directory: d, log: log, now: now, noted: map[string]time.Time{}}
}

// Seen notes a clone. That it could not be written is logged: the clone comes again.
func (c *Clones) Seen(ctx context.Context, agentID string, clone announce.Clone) {
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
		c.log.Error().Err(err).Str("agent", agentID).Msg("failed to record a copied identity")
		c.mu.Lock()
		delete(c.noted, agentID)
		c.mu.Unlock()
	}
}

func (c *Clones) write(ctx context.Context, agentID string, clone announce.Clone, now time.Time) error {
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
		return c.directory.Write(ctx, tx, announce.AgentCloned, a, now)
	})
	if err == nil && isNew {
		c.log.Warn().Str("agent", agentID).Str("otherCluster", clone.ClusterUID).Str("instance", clone.Instance).Str("from", clone.Address).
			Msg("two agents use the same identity: it was copied; see `pipeops-controlplane agent get`")
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

// Forget takes those off the agents that were not seen for long.
func (c *Clones) Forget(ctx context.Context) error {
	agents, err := c.store.Agents(ctx)
	if err != nil {
		return err
	}
	now := c.now()
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
			return c.directory.Write(ctx, tx, announce.AgentUpdated, current, now)
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}
