package hosts

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

const (
	// checkEvery is how often the checker looks for claims that are due.
	checkEvery = 5 * time.Second
	// batch is how many claims are looked at before the next are read, and together how many at a
	// time.
	batch, together = 256, 16
	storeTimeout    = 10 * time.Second
)

// Checker looks at the proofs of hosts when they are due.
type Checker struct {
	Store    *store.Store
	Resolver *Resolver
	Domain   string // of the gateway
	Now      func() time.Time
	Log      zerolog.Logger
	// Changed is called after claims have changed.
	Changed func()

	wake chan struct{}
}

// NewChecker returns a Checker.
func NewChecker(c Checker) *Checker {
	c.wake = make(chan struct{}, 1)
	return &c
}

// Look makes the checker look now: there may be new claims.
func (c *Checker) Look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run looks at claims until the context ends. It must run in one process at a time.
func (c *Checker) Run(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		more := true
		for more && ctx.Err() == nil {
			more = c.pass(ctx) == batch
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// pass looks at the claims that are due, and returns how many it changed.
func (c *Checker) pass(ctx context.Context) (changed int) {
	due, err := c.due(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.Log.Error().Err(err).Msg("cannot read the hosts whose proofs are due; trying again")
		}
		return 0
	}
	var group errgroup.Group
	group.SetLimit(together)
	ok := make([]bool, len(due))
	for i, claim := range due {
		group.Go(func() error {
			ok[i] = c.check(ctx, claim)
			return nil
		})
	}
	_ = group.Wait()
	for _, done := range ok {
		if done {
			changed++
		}
	}
	if changed > 0 && c.Changed != nil {
		c.Changed()
	}
	return changed
}

func (c *Checker) due(ctx context.Context) ([]store.HostClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.Store.DueClaims(ctx, c.Now(), batch)
}

// check looks at one claim and stores what it found. It reports whether that worked.
func (c *Checker) check(ctx context.Context, claim store.HostClaim) bool {
	now, err := c.judge(ctx, claim)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		c.Log.Warn().Err(err).Str("host", claim.Host).Str("agent", claim.AgentID).Msg("cannot check the proof of a host; trying again")
	}
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err = c.Store.Update(limited, func(tx *store.Tx) error {
		claims, err := tx.ClaimsTo(limited, claim.Host)
		if err != nil {
			return err
		}
		for _, current := range claims {
			if current.AgentID == claim.AgentID && current.ClaimedAt.Equal(claim.ClaimedAt) {
				return tx.PutClaim(limited, now)
			}
		}
		return nil // the agent has given the host up meanwhile
	})
	if err != nil && ctx.Err() == nil {
		c.Log.Error().Err(err).Str("host", claim.Host).Msg("cannot store the proof of a host; trying again")
	}
	if claim.Proof != now.Proof || claim.LostAt.IsZero() != now.LostAt.IsZero() {
		c.Log.Info().Str("host", claim.Host).Str("agent", claim.AgentID).Str("proof", now.Proof).Bool("lost", !now.LostAt.IsZero()).Msg("the proof of a host has changed")
	}
	return err == nil
}

// judge returns a claim by what is true now.
func (c *Checker) judge(ctx context.Context, claim store.HostClaim) (store.HostClaim, error) {
	granted, err := c.Store.GrantOf(ctx, claim.Host)
	switch {
	case err != nil:
		return unsure(claim, err, c.Now()), err
	case granted == claim.AgentID:
		return found(claim, Grant, "", c.Now()), nil
	case Within(claim.Host, c.Domain):
		now, err := c.given(ctx, claim)
		if err != nil {
			return unsure(claim, err, c.Now()), err
		}
		return now, nil
	}
	proof, err := c.Resolver.Prove(ctx, claim.AgentID, claim.Host, c.Domain)
	if err != nil {
		return unsure(claim, err, c.Now()), err
	}
	return found(claim, proof, Missing(claim.AgentID, claim.Host, c.Domain), c.Now()), nil
}

// given returns a claim to a host below the gateway's own domain. A grant that was taken back ends at
// once.
func (c *Checker) given(ctx context.Context, claim store.HostClaim) (store.HostClaim, error) {
	agent, err := c.Store.Agent(ctx, claim.AgentID)
	if err != nil {
		return claim, err
	}
	routes, err := c.Store.RoutesOf(ctx, claim.AgentID)
	if err != nil {
		return claim, err
	}
	others, err := c.Store.ClaimsTo(ctx, claim.Host)
	return Renew(claim, agent, routes, c.Domain, others, c.Now()), err
}
