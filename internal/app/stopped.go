package app

import (
	"context"
	"fmt"

	"k8s.io/utils/ptr"
)

// stopped reports whether the newest spec and restart are kept from being rolled out.
func (a *App) stopped() bool {
	s := a.Status.Stopped
	return s != nil && s.Generation == a.Generation && s.Restart == a.restart()
}

// holdBack restores the workload of the time when the App was last healthy, or removes its pods if
// it never was.
func (e *Engine) holdBack(ctx context.Context, a *App) (made, error) {
	held, err := e.lastGood(ctx, a)
	if err != nil {
		return made{}, err
	}
	w := workload(held)
	if err := e.ensure(ctx, held, w); err != nil {
		return made{}, fmt.Errorf("stop the rollout of App %s: %w", a.key(), err)
	}
	return made{workload: w, objects: a.Status.Made, refusal: a.Status.Stopped.Diagnosis.DeepCopy()}, nil
}

func (e *Engine) lastGood(ctx context.Context, a *App) (*App, error) {
	held := a.DeepCopy()
	if target := a.goesBackTo(); target > 0 {
		all, err := e.revisionsOf(ctx, a)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Revision == target {
				held.Spec, err = restored(&all[i], a.Spec)
				return held, err
			}
		}
	}
	held.Spec.Replicas, held.Spec.Autoscaling = ptr.To[int32](0), nil
	return held, nil
}
