package rollout

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// change reads the newest App from the API server, lets how modify it, and writes only that
// modification. If another client wrote in between, it reads and writes again, so how may run
// several times. If this command was carried out before, change does not call how and returns the
// App as it is now.
func (w *Writer) change(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions, how func(*v1alpha1.App) error) (*v1alpha1.App, error) {
	w.traces.note(ctx, key)
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	var a *v1alpha1.App
	err := w.races.Run(ctx, key.String(), func() error {
		var err error
		if a, err = w.store.GetLive(ctx, key); err != nil {
			return appcache.ReadProblem(err, key)
		}
		before := a.DeepCopy()
		if !objectmeta.RecordCommand(a, opts.Command) {
			return nil
		}
		if err := how(a); err != nil {
			return err
		}
		sign(a, opts.Caller)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return w.writer(opts).Patch(ctx, a, patch, client.FieldOwner(objectmeta.FieldManager))
	})
	if err == nil {
		w.awaitCached(ctx, a, opts)
	}
	return a, err
}

// awaitCached waits until the cache has an App as it was written, so that the caller's next read
// finds it. The client's own read-your-writes is not enough: in a cache of several namespaces, it
// takes an event of another namespace for the one that it waits for. A cache that lags by more than
// a second does not delay the answer further.
func (w *Writer) awaitCached(ctx context.Context, written *v1alpha1.App, opts runnerapi.WriteOptions) {
	if opts.DryRun {
		return
	}
	_ = wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, time.Second, true, func(ctx context.Context) (bool, error) {
		var seen v1alpha1.App
		err := w.store.Cached.Get(ctx, client.ObjectKeyFromObject(written), &seen)
		return err == nil && seen.UID == written.UID && seen.Generation >= written.Generation, nil
	})
}
