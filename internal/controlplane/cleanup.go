package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authority"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// dropRevoked closes the tunnels of agents that another process revoked.
func (c *ControlPlane) dropRevoked(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	revoked, err := c.store.RevokedAgents(ctx)
	if err != nil {
		c.cfg.Log.Error().Err(err).Msg("cannot read which agents are revoked")
		return
	}
	for _, id := range revoked {
		if c.tunnel.Connected(id) {
			c.cfg.Log.Info().Str("agent", id).Msg("agent was revoked: closing its tunnel")
			c.tunnel.Disconnect(id)
		}
	}
}

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
