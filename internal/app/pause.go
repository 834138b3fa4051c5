package app

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pause has everything left as it is until Resume.
func (e *Engine) Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return e.setPaused(ctx, key, true, "pausing App ", opts)
}

// Resume rolls out what was changed since Pause.
func (e *Engine) Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return e.setPaused(ctx, key, false, "resuming App ", opts)
}

func (e *Engine) setPaused(ctx context.Context, key runnerapi.Key, paused bool, doing string, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	var value any // null removes the field, so that resuming twice changes nothing
	if paused {
		value = true
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{
			managed.ChangedBy: opts.Caller.Runner, managed.RequestID: opts.Caller.RequestID,
		}},
		"spec": map[string]any{"paused": value},
	})
	if err != nil {
		return runnerapi.App{}, err
	}
	a, err := e.get(ctx, key)
	if err == nil {
		err = e.keepUnseen(ctx, a, opts)
	}
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, doing+key.String())
	}
	a = &App{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	err = e.writer(opts).Patch(ctx, a, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(managed.FieldManager))
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, doing+key.String())
	}
	return a.Wire(), nil
}
