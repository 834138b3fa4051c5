package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authority"
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
			c.cfg.Log.Error().Err(err).Msg("old notes were not dropped")
		}
		if err := authority.ForgetCertificates(ctx, c.store, c.cfg.Now()); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("old records of certificates were not dropped")
		}
		if err := errors.Join(enrolment.Forget(ctx, c.store, c.cfg.Now()), c.clones.Forget(ctx)); err != nil && ctx.Err() == nil {
			c.cfg.Log.Error().Err(err).Msg("old enrolments and clones were not dropped")
		}
		retry.Wait(ctx, cleanEvery)
	}
	return nil
}
