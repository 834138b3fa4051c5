package app

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

// takeOver reconciles everything when this replica becomes the leader: what happened before was the
// former leader's task.
func (e *Engine) takeOver(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.election.Gained():
		}
		if !e.election.Begin() { //nolint:contextcheck // a leadership ends before ctx
			continue
		}
		e.log.Info().Msg("this replica is the leader: it reconciles and announces Apps")
		e.sender.Reread()
		e.sender.Look()
		if e.cfg.Led != nil {
			e.cfg.Led()
		}
		var list v1alpha1.List
		if err := e.store.Cached.List(ctx, &list, appcache.Untouched); err != nil {
			return nil //nolint:nilerr // the context ended
		}
		for i := range list.Items {
			if !e.store.Resync(ctx, list.Items[i].Key()) {
				return nil
			}
		}
	}
}

// Leads reports whether this replica reconciles and announces.
func (e *Engine) Leads() bool { return e.election.Leads() }

// Accepted returns the last call with events that the control plane accepted; the zero value for
// none.
func (e *Engine) Accepted() leader.Leadership { return e.sender.Accepted() }

// ResendApps sends the current states of all Apps to the control plane, which lost events.
func (e *Engine) ResendApps() { e.sender.Resend() }

// StepDown lets another replica lead, for good. This replica keeps serving.
func (e *Engine) StepDown() { e.election.Resign() }
