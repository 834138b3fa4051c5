package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const cleanEvery = time.Hour

const (
	// receivedFor is how long an agent may take to resend an event.
	receivedFor = 7 * 24 * time.Hour
)

// clean deletes expired data.
func (c *ControlPlane) clean(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := c.store.ForgetReceived(ctx, c.cfg.Now().Add(-receivedFor)); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("failed to remove old records of copied identities")
		}
		if err := castore.ForgetCertificates(ctx, c.store, c.cfg.Now()); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("failed to remove old records of certificates")
		}
		if err := errors.Join(enrolment.Forget(ctx, c.store, c.cfg.Now()), c.clones.Forget(ctx), c.api.exchange.Forget(ctx), c.visitors.Forget(ctx)); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("failed to remove old enrolments, copies, ID tokens and codes of visitors")
		}
		retry.Wait(ctx, cleanEvery)
	}
	return nil
}
