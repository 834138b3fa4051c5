package agent

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// storeTimeout bounds keeping what a heartbeat brought: the next one brings it again.
const storeTimeout = 10 * time.Second

// caRotation follows the control plane's CAs, as the heartbeats report them.
type caRotation struct {
	store   *identityStore
	current *currentIdentity
	renewal *renewal
	beat    wake.Signal
	log     zerolog.Logger
	// wanted is the hash of the bundle to trust. A control plane that sent none does not expect a
	// report either.
	wanted string
}

// reported returns the hash of the bundle that this replica trusts, for a control plane that asks.
func (c *caRotation) reported() string {
	if c.wanted == "" {
		return ""
	}
	return controlapi.BundleHash(c.current.Load().CABundle)
}

// take follows a rotation of the control plane's CA: first its certificate is
// trusted beside the old one, and kept, then this agent's own is renewed, so that
// it is the new one's.
func (c *caRotation) take(ctx context.Context, answer controlapi.HeartbeatAnswer) {
	news := c.wanted != answer.CABundleHash
	if c.wanted = answer.CABundleHash; c.wanted == "" {
		return
	}
	if answer.RenewWithin > 0 {
		c.renewal.within(time.Duration(answer.RenewWithin) * time.Second)
	}
	id := c.current.Load()
	switch {
	case controlapi.BundleHash(id.CABundle) == c.wanted:
		return
	case answer.CAs == nil: // it does not know yet what this replica has
		if news {
			c.beat.Raise()
		}
		return
	}
	next, err := c.keep(ctx, id, *answer.CAs)
	if err != nil {
		c.log.Warn().Err(err).Msg("failed to store the control plane's new CAs; retrying")
		return
	}
	// Unless the certificate was renewed meanwhile, which brought the CAs as well.
	if next != id && c.current.CompareAndSwap(id, next) {
		c.log.Info().Str("caBundle", controlapi.BundleHash(next.CABundle)).Msg("the control plane's CAs changed; trusting the new ones")
		c.beat.Raise()
	}
}

// keep returns the identity with those CAs once it is stored. What another replica has stored
// meanwhile is taken up, and what is missing in it comes with the next heartbeat.
func (c *caRotation) keep(ctx context.Context, id *identity.Identity, cas controlapi.CAs) (*identity.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	next, err := id.With(cas)
	if err != nil {
		return nil, err
	}
	parts, version, err := c.store.Load(ctx)
	if err != nil {
		return nil, err
	}
	stored, damaged := identity.Decode(parts)
	switch {
	case damaged == nil && !stored.Same(id):
		return stored, nil
	case damaged == nil && stored.CABundle == cas.Bundle:
		return next, nil
	}
	saved, err := c.store.saveBeside(ctx, next, parts, version)
	switch {
	case err != nil:
		return nil, err
	case !saved:
		return id, nil
	}
	return next, nil
}
