package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// storeTimeout bounds keeping what a heartbeat brought: the next one brings it again.
const storeTimeout = 10 * time.Second

// caState is what the heartbeats found out of the control plane's CAs; it is theirs
// alone.
type caState struct {
	// wanted is the hash of the bundle to trust. A control plane that sent none does not expect a
	// report either.
	wanted string
}

// reportedCAs returns the hash of the bundle that this replica trusts, for a control plane that
// asks.
func (a *Agent) reportedCAs() string {
	if a.cas.wanted == "" {
		return ""
	}
	return controlapi.BundleHash(a.current.Load().CABundle)
}

// takeCAs follows a rotation of the control plane's CA: first its certificate is
// trusted beside the old one, and kept, then this agent's own is renewed, so that
// it is the new one's.
func (a *Agent) takeCAs(ctx context.Context, answer controlapi.HeartbeatAnswer) {
	news := a.cas.wanted != answer.CABundleHash
	if a.cas.wanted = answer.CABundleHash; a.cas.wanted == "" {
		return
	}
	if answer.RenewWithin > 0 {
		a.renewWithin(time.Duration(answer.RenewWithin) * time.Second)
	}
	id := a.current.Load()
	switch {
	case controlapi.BundleHash(id.CABundle) == a.cas.wanted:
		return
	case answer.CAs == nil: // it does not know yet what this replica has
		if news {
			a.beatSoon()
		}
		return
	}
	next, err := a.keepCAs(ctx, id, *answer.CAs)
	if err != nil {
		a.log.Warn().Err(err).Msg("the control plane's new CAs could not be kept; trying again")
		return
	}
	// Unless the certificate was renewed meanwhile, which brought the CAs as well.
	if next != id && a.current.CompareAndSwap(id, next) {
		a.log.Info().Str("caBundle", controlapi.BundleHash(next.CABundle)).Msg("the control plane's CAs changed: trusting these from now on")
		a.beatSoon()
	}
}

// keepCAs returns the identity with those CAs once it is stored. What another replica has stored
// meanwhile is taken up, and what is missing in it comes with the next heartbeat.
func (a *Agent) keepCAs(ctx context.Context, id *identity.Identity, cas controlapi.CAs) (*identity.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	next, err := id.With(cas)
	if err != nil {
		return nil, err
	}
	parts, version, err := a.store.Load(ctx)
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
	saved, err := a.saveBeside(ctx, next, parts, version)
	switch {
	case err != nil:
		return nil, err
	case !saved:
		return id, nil
	}
	return next, nil
}

// saveBeside stores the identity in place of the one in parts, which are stored as that
// version, and leaves what else is there.
func (a *Agent) saveBeside(ctx context.Context, id *identity.Identity, parts map[string][]byte, version string) (bool, error) {
	encoded, err := id.Encode()
	if err != nil {
		return false, err
	}
	for name, part := range parts { // a request for the next certificate may be among them
		if _, ours := encoded[name]; !ours {
			encoded[name] = part
		}
	}
	return a.store.Save(ctx, encoded, version)
}

// renewWithin schedules the renewal of the certificate at some moment within d, unless an earlier
// one is scheduled.
func (a *Agent) renewWithin(d time.Duration) {
	if a.renewBy.Load() != nil {
		return
	}
	at := a.now().Add(rand.N(d)) //nolint:gosec // spreading load needs no secrecy
	a.renewBy.Store(&at)
	select {
	case a.hurry <- struct{}{}:
	default: // it will look anyway
	}
}

// renewalDue returns how long the certificate may wait.
func (a *Agent) renewalDue() time.Duration {
	at := a.current.Load().RenewAt()
	if by := a.renewBy.Load(); by != nil && by.Before(at) {
		at = *by
	}
	return at.Sub(a.now())
}
