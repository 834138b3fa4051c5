package app

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pause stops all changes until Resume.
func (e *Engine) Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return e.setPaused(ctx, key, true, "pausing App ", opts)
}

// Resume rolls out what has changed since Pause.
func (e *Engine) Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return e.setPaused(ctx, key, false, "resuming App ", opts)
}

func (e *Engine) setPaused(ctx context.Context, key runnerapi.Key, paused bool, doing string, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	a, err := e.change(ctx, key, opts, func(a *App) error {
		a.Spec.Paused = nil
		if paused {
			a.Spec.Paused = &paused
		}
		return e.keepUnseen(ctx, a, opts)
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, doing+key.String())
	}
	return a.Wire(), nil
}
