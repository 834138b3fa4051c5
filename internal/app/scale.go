package app

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Scale sets the number of pods, or the bounds of autoscaling, and nothing else:
// one patch, so it cannot undo what somebody else changes at the same time.
func (e *Engine) Scale(ctx context.Context, key runnerapi.Key, scale runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	if err := invalid(scale.Validate()); err != nil {
		return runnerapi.App{}, err
	}
	a, err := e.get(ctx, key)
	if err != nil {
		return runnerapi.App{}, err
	}
	spec, err := scalePatch(a, scale)
	if err != nil {
		return runnerapi.App{}, err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{
			managed.ChangedBy: opts.Caller.Runner, managed.RequestID: opts.Caller.RequestID,
		}},
		"spec": spec,
	})
	if err != nil {
		return runnerapi.App{}, err
	}
	if err := e.keepUnseen(ctx, a, opts); err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "scaling App "+key.String())
	}
	a = &App{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = e.writer(opts).Patch(ctx, a, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(managed.FieldManager))
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "scaling App "+key.String())
	}
	return a.Wire(), nil
}

// scalePatch is what changes of the spec. A fixed number turns autoscaling off;
// bounds turn it on, and let an App run that was scaled to nothing.
func scalePatch(a *App, scale runnerapi.Scale) (map[string]any, error) {
	if !a.Spec.Type.Scales() {
		return nil, problem.Errorf(problem.Invalid, "change its spec instead: only a Deployment or StatefulSet scales",
			"App %s is a %s, which has no number of pods to set", a.key(), a.Spec.Type)
	}
	if scale.Replicas != nil {
		return map[string]any{"replicas": *scale.Replicas, "autoscaling": nil}, nil
	}
	if a.Spec.Autoscaling == nil && (scale.Min == nil || scale.Max == nil) {
		return nil, problem.Errorf(problem.Invalid, "give both min and max", "App %s has no autoscaling yet, so it needs both bounds", a.key())
	}
	bounds := map[string]any{}
	for name, n := range map[string]*int32{"min": scale.Min, "max": scale.Max, "cpuPercent": scale.CPUPercent} {
		if n != nil {
			bounds[name] = *n
		}
	}
	patch := map[string]any{"autoscaling": bounds}
	if scale.Min != nil {
		patch["replicas"] = *scale.Min
	}
	return patch, nil
}
