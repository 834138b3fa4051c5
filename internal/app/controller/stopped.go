package controller

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
)

// holdBack restores the workload of the time when the App was last healthy, or removes its pods if
// it never was.
func (c *Controller) holdBack(ctx context.Context, a *v1alpha1.App) (made, error) {
	held, err := c.lastGood(ctx, a)
	if err != nil {
		return made{}, err
	}
	w, err := workload.Of(held)
	if err != nil {
		return made{}, err
	}
	if err := c.applier.Ensure(ctx, held, w); err != nil {
		return made{}, fmt.Errorf("stop the rollout of App %s: %w", a.Key(), err)
	}
	return made{workload: w, objects: a.Status.Made, refusal: a.Status.Stopped.Diagnosis.DeepCopy()}, nil
}

func (c *Controller) lastGood(ctx context.Context, a *v1alpha1.App) (*v1alpha1.App, error) {
	held := a.DeepCopy()
	if target := a.RollbackTarget(); target > 0 {
		all, err := c.history.List(ctx, a)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Revision == target {
				held.Spec, err = revision.Restored(&all[i], a.Spec)
				return held, err
			}
		}
	}
	held.Spec.Replicas, held.Spec.Autoscaling = new(int32(0)), nil
	return held, nil
}
