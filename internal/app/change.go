package app

import (
	"context"

	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// change reads the newest App from the API server, lets how modify it, and writes only that
// modification. If another client wrote in between, it reads and writes again, so how may run
// several times. If this command was carried out before, change does not call how and returns the
// App as it is now.
func (e *Engine) change(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, how func(*App) error) (*App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	var a *App
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if a, err = e.getLive(ctx, key); err != nil {
			return err
		}
		before := a.DeepCopy()
		if !managed.Note(a, opts.Command) {
			return nil
		}
		if err := how(a); err != nil {
			return err
		}
		sign(a, opts.Caller)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return e.writer(opts).Patch(ctx, a, patch, client.FieldOwner(managed.FieldManager))
	})
	return a, err
}
