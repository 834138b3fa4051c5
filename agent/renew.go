package agent

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// renewals keeps the certificate fresh: a new key and certificate at two
// thirds of the old one's life, or at once when the agent was away for longer
// than that. Nothing is dropped: connections that are open go on, new ones use
// the new certificate. Each replica of the agent does this; one of them asks.
func (a *Agent) renewals(ctx context.Context, control *controlapi.Client) error {
	for {
		if !a.sleepUntilRenewal(ctx) {
			return nil
		}
		err := a.retryRenewal(ctx, control)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent stops; that the call failed for it is no error
		}
		if err != nil {
			return err
		}
		a.beatSoon()
	}
}

// sleepUntilRenewal waits in short steps: a machine that was suspended must
// notice, and timers do not run while it is. The control plane may ask for it
// earlier.
func (a *Agent) sleepUntilRenewal(ctx context.Context) bool {
	for due := a.renewalDue(); due > 0; due = a.renewalDue() {
		timer := time.NewTimer(retry.Jitter(min(due, cmp.Or(a.opts.RenewalCheck, time.Minute))))
		select {
		case <-ctx.Done():
		case <-a.hurry:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

func (a *Agent) retryRenewal(ctx context.Context, control *controlapi.Client) error {
	for wait := newBackoff(); ; {
		id, err := a.renew(ctx, control)
		if err == nil {
			a.renewBy.Store(nil)
			a.adopt(id)
			return nil
		}
		if isRefused(err) || ctx.Err() != nil {
			return err
		}
		a.log.Warn().Err(err).Time("notAfter", a.current.Load().NotAfter()).Msg("certificate not renewed; trying again")
		if !retry.Wait(ctx, wait.NextBackOff()) {
			return ctx.Err()
		}
	}
}

// renew asks for a certificate over a new key, unless another replica did. With
// an expired certificate the old key proves the agent instead of TLS.
func (a *Agent) renew(ctx context.Context, control *controlapi.Client) (*identity.Identity, error) {
	old := a.current.Load()
	return a.obtain(ctx, old, func(ctx context.Context, key *ecdsa.PrivateKey) (*identity.Identity, error) {
		csr, err := identity.CSR(key)
		if err != nil {
			return nil, err
		}
		var answer controlapi.Identity
		if a.now().Before(old.NotAfter()) {
			answer, err = control.Renew(ctx, csr)
		} else {
			answer, err = control.Recover(ctx, old.Leaf(), old.Key(), csr)
		}
		if err != nil {
			return nil, err
		}
		return identity.New(key, answer, old.SystemRoots)
	})
}
