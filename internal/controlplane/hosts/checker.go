package hosts

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// checkEvery is how often the checker looks for claims that are due.
	checkEvery = 5 * time.Second
	// batch is how many claims are read at once, together how many are looked at at the same time,
	// and each how many of one agent: its DNS server may be slow.
	batch, together, each = 256, 32, 4
	storeTimeout          = 10 * time.Second
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

	wake wake.Signal
}

// NewChecker returns a Checker.
func NewChecker(c Checker) *Checker {
	c.wake = wake.New()
	return &c
}

// Look makes the checker look now: there may be new claims.
func (c *Checker) Look() {
	c.wake.Raise()
}

// Run looks at claims until the context ends. It must run in one process at a time.
func (c *Checker) Run(ctx context.Context) error {
	workers := limit.NewWorkers(together, each, c.wake.Raise)
	defer workers.Wait()
	for {
		c.pass(ctx, workers)
		if !c.wake.WaitFor(ctx, checkEvery) {
			return nil
		}
	}
}

// pass begins to look at the claims that are due, of each agent as many as its share.
func (c *Checker) pass(ctx context.Context, workers *limit.Workers) {
	due, err := c.due(ctx)
	if err != nil && ctx.Err() == nil {
		c.Log.Error().Err(err).Msg("failed to read the hosts whose proofs are due; retrying")
	}
	for _, claim := range due {
		workers.Try(claim.AgentID, claim.AgentID+" "+claim.Host, func() {
			switch changed, err := c.check(ctx, claim); {
			case err != nil:
				retry.Wait(ctx, checkEvery) // it is still due
			case changed && c.Changed != nil:
				c.Changed()
			}
		})
	}
}

func (c *Checker) due(ctx context.Context) ([]store.HostClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return c.Store.DueClaims(ctx, c.Now(), batch, each)
}

// check looks at one claim and stores what it found. It reports whether it has stored anything.
func (c *Checker) check(ctx context.Context, claim store.HostClaim) (stored bool, err error) {
	dns, err := c.ask(ctx, claim)
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		c.Log.Warn().Err(err).Str("host", claim.Host).Str("agent", claim.AgentID).Msg("failed to check the proof of a host; retrying")
	}
	now := claim
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err = c.Store.Update(limited, func(tx *store.Tx) error {
		claims, err := tx.ClaimsTo(limited, claim.Host)
		if err != nil || !unchanged(claims, claim) {
			return err
		}
		now, stored, err = c.judge(limited, tx, claim, dns)
		if err != nil || !stored {
			return err
		}
		if controlapi.WithinDomain(claim.Host, c.Domain) || len(claims) == 1 {
			return tx.PutClaim(limited, now)
		}
		return c.hurry(limited, tx, now, claims)
	})
	if err != nil {
		if ctx.Err() == nil {
			c.Log.Error().Err(err).Str("host", claim.Host).Msg("failed to store the proof of a host; retrying")
		}
		return false, err
	}
	if claim.Proof != now.Proof || claim.LostAt.IsZero() != now.LostAt.IsZero() {
		c.Log.Info().Str("host", claim.Host).Str("agent", claim.AgentID).Str("proof", now.Proof).Bool("lost", !now.LostAt.IsZero()).Msg("the proof of a host has changed")
	}
	return stored, nil
}

// unchanged reports whether the stored claim is still the one that was read. A claim that has
// changed is checked again when it is due.
func unchanged(claims []store.HostClaim, claim store.HostClaim) bool {
	for _, current := range claims {
		current.Mode, current.ModeReason = claim.Mode, claim.ModeReason // they are the gateways'
		if current == claim {
			return true
		}
	}
	return false
}

// hurry stores a claim to a host that other agents name, too, and has all claims to it checked
// soon: the domain may move from one to another.
func (c *Checker) hurry(ctx context.Context, tx *store.Tx, now store.HostClaim, claims []store.HostClaim) error {
	next := c.Now().Add(soon)
	for _, other := range claims {
		if other.AgentID == now.AgentID {
			other = now
		}
		if other.NextAt.After(next) {
			other.NextAt = next
		} else if other.AgentID != now.AgentID {
			continue
		}
		if err := tx.PutClaim(ctx, other); err != nil {
			return err
		}
	}
	return nil
}

// answer is the result of the DNS query for a claim. A query that failed is a result too: it
// postpones the loss of the host.
type answer struct {
	asked bool
	proof string
	err   error
}

func (a answer) failed() bool { return a.err != nil }

// ask queries DNS for a claim that depends on it. The query runs outside the transaction, because
// it may take seconds.
func (c *Checker) ask(ctx context.Context, claim store.HostClaim) (answer, error) {
	if controlapi.WithinDomain(claim.Host, c.Domain) {
		return answer{}, nil
	}
	granted, err := c.Store.GrantOf(ctx, claim.Host)
	if err != nil || granted == claim.AgentID {
		return answer{}, err
	}
	proof, err := c.Resolver.Prove(ctx, claim.AgentID, claim.Host, c.Domain)
	return answer{true, proof, err}, err
}

// judge returns a claim by what is true now. It has no result if DNS should have been asked: a
// grant was taken back meanwhile.
func (c *Checker) judge(ctx context.Context, tx *store.Tx, claim store.HostClaim, dns answer) (now store.HostClaim, ok bool, err error) {
	granted, err := tx.GrantOf(ctx, claim.Host)
	switch {
	case err != nil:
		return claim, false, err
	case granted == claim.AgentID:
		return found(claim, Grant, "", c.Now()), true, nil
	case controlapi.WithinDomain(claim.Host, c.Domain):
		now, err := c.given(ctx, tx, claim)
		return now, err == nil, err
	case claim.Proof == Grant: // it was taken back, and the grace is for DNS
		claim.Proof, claim.ProvenAt, claim.LostAt = "", time.Time{}, time.Time{}
	}
	if dns.failed() {
		return unsure(claim, dns.err, c.Now()), true, nil
	}
	return found(claim, dns.proof, Missing(claim.AgentID, claim.Host, c.Domain), c.Now()), dns.asked, nil
}

// given returns a claim to a host below the gateway's own domain. A grant that was taken back ends
// at once.
func (c *Checker) given(ctx context.Context, tx *store.Tx, claim store.HostClaim) (store.HostClaim, error) {
	agent, err := tx.Agent(ctx, claim.AgentID)
	if err != nil {
		return claim, err
	}
	routes, err := tx.RoutesOf(ctx, claim.AgentID)
	if err != nil {
		return claim, err
	}
	others, err := tx.ClaimsTo(ctx, claim.Host)
	return Renew(claim, agent, routes, c.Domain, others, c.Now()), err
}
