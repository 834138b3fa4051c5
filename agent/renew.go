package agent

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// renewal renews the agent's certificate.
type renewal struct {
	check   time.Duration // the longest time until the next look at the clock; a minute if zero
	now     func() time.Time
	log     zerolog.Logger
	store   *identityStore
	current *currentIdentity
	beat    wake.Signal
	ended   func(refusal error) bool // enrolment.ended
	// by is when the control plane wants the certificate renewed, or nil. hurry signals a change.
	by    atomic.Pointer[time.Time]
	hurry wake.Signal
}

// run keeps the certificate fresh: a new key and certificate at two
// thirds of the old one's life, or at once when the agent was away for longer
// than that. Nothing is dropped: connections that are open go on, new ones use
// the new certificate. Each replica of the agent does this; one of them asks.
func (r *renewal) run(ctx context.Context, control *controlapi.Client) error {
	for {
		if !r.sleep(ctx) {
			return nil
		}
		err := r.retry(ctx, control)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the agent stops; that the call failed for it is not an error
		}
		if err != nil {
			return err
		}
		r.beat.Raise()
	}
}

// sleep waits in short steps: a machine that was suspended must
// notice, and timers do not run while it is. The control plane may ask for it
// earlier.
func (r *renewal) sleep(ctx context.Context) bool {
	for due := r.due(); due > 0; due = r.due() {
		if !r.hurry.WaitFor(ctx, retry.Jitter(min(due, cmp.Or(r.check, time.Minute)))) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (r *renewal) retry(ctx context.Context, control *controlapi.Client) error {
	for wait := newBackoff(); ; {
		id, err := r.renew(ctx, control)
		if err == nil {
			r.by.Store(nil)
			r.current.adopt(id)
			return nil
		}
		if r.ended(err) || ctx.Err() != nil {
			return err
		}
		r.log.Warn().Err(err).Time("notAfter", r.current.Load().NotAfter()).Msg("failed to renew the certificate; retrying")
		if !retry.Wait(ctx, wait.NextBackOff()) {
			return ctx.Err()
		}
	}
}

// renew asks for a certificate over a new key, unless another replica did. With
// an expired certificate the old key proves the agent instead of TLS.
func (r *renewal) renew(ctx context.Context, control *controlapi.Client) (*identity.Identity, error) {
	old := r.current.Load()
	return r.store.obtain(ctx, old, func(ctx context.Context, key *ecdsa.PrivateKey) (*identity.Identity, error) {
		csr, err := identity.CSR(key)
		if err != nil {
			return nil, err
		}
		var answer controlapi.Identity
		if r.now().Before(old.NotAfter()) {
			answer, err = control.Renew(ctx, csr)
		} else {
			answer, err = control.Recover(ctx, old.Leaf(), old.Key(), csr)
		}
		if err != nil {
			return nil, err
		}
		return identity.New(key, answer, old.Registration)
	})
}

// within schedules the renewal of the certificate at some moment within d, unless an earlier
// one is scheduled.
func (r *renewal) within(d time.Duration) {
	if r.by.Load() != nil {
		return
	}
	at := r.now().Add(rand.N(d)) //nolint:gosec // spreading load needs no secrecy
	r.by.Store(&at)
	r.hurry.Raise()
}

// due returns how long the certificate may wait.
func (r *renewal) due() time.Duration {
	at := r.current.Load().RenewAt()
	if by := r.by.Load(); by != nil && by.Before(at) {
		at = *by
	}
	return at.Sub(r.now())
}
