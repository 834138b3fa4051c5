package rollout

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pause stops all changes until Resume.
func (w *Writer) Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return w.setPaused(ctx, key, true, "pausing App ", opts)
}

// Resume rolls out what has changed since Pause.
func (w *Writer) Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return w.setPaused(ctx, key, false, "resuming App ", opts)
}

func (w *Writer) setPaused(ctx context.Context, key runnerapi.Key, paused bool, doing string, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	a, err := w.change(ctx, key, opts, func(a *v1alpha1.App) error {
		a.Spec.Paused = nil
		if paused {
			a.Spec.Paused = &paused
		}
		return w.history.KeepUnseen(ctx, a, opts)
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, doing+key.String())
	}
	return a.Wire(), nil
}
