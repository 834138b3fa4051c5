package rollout

import (
	"context"

	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Scale sets the number of pods, or the bounds of autoscaling, and nothing else.
func (w *Writer) Scale(ctx context.Context, key runnerapi.Key, to runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	if err := invalid(to.Validate()); err != nil {
		return runnerapi.App{}, err
	}
	a, err := w.change(ctx, key, opts, func(a *v1alpha1.App) error {
		if err := w.history.KeepUnseen(ctx, a, opts); err != nil {
			return err
		}
		return scale(a, to)
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "scaling App "+key.String())
	}
	return a.Wire(), nil
}

// scale changes the spec. A fixed number turns autoscaling off; bounds turn it on, and
// let an App run that was scaled to nothing.
func scale(a *v1alpha1.App, to runnerapi.Scale) error {
	if !a.Spec.Type.Scales() {
		return problem.Errorf(problem.Invalid, "change its spec instead: only a Deployment or StatefulSet scales",
			"App %s is a %s, which has no number of pods to set", a.Key(), a.Spec.Type)
	}
	if to.Replicas != nil {
		a.Spec.Replicas, a.Spec.Autoscaling = new(*to.Replicas), nil
		return nil
	}
	if a.Spec.Autoscaling == nil && (to.Min == nil || to.Max == nil) {
		return problem.Errorf(problem.Invalid, "give both min and max", "App %s has no autoscaling yet, so it needs both bounds", a.Key())
	}
	if a.Spec.Autoscaling == nil {
		a.Spec.Autoscaling = &runnerapi.Autoscaling{}
	}
	bounds := a.Spec.Autoscaling
	bounds.Min, bounds.Max = ptr.Deref(to.Min, bounds.Min), ptr.Deref(to.Max, bounds.Max)
	bounds.CPUPercent = ptr.Deref(to.CPUPercent, bounds.CPUPercent)
	if to.Min != nil {
		a.Spec.Replicas = new(*to.Min)
	}
	return nil
}
