package rollout

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deleteWait is how long Delete waits for the App to be gone. A longer deletion continues by
// itself.
const deleteWait = 20 * time.Second

// Delete removes the App and the objects that it made. It returns when the App and its pods are
// gone, or after a while if the pods take time to stop. No second call is needed.
func (w *Writer) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	w.traces.note(ctx, key)
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return err
	}
	news, cancel := w.store.Subscribe(key)
	defer cancel()
	var a *v1alpha1.App
	late := false
	err := w.races.Run(ctx, key.String(), func() (err error) {
		if a, err = w.store.GetLive(ctx, key); err != nil {
			return appcache.ReadProblem(err, key)
		}
		if late, err = opts.Late(ctx); late || err != nil {
			return err
		}
		return w.writer(opts).Delete(ctx, a, client.Preconditions{UID: &a.UID})
	})
	if err != nil || late || opts.DryRun {
		return kubeproblem.From(err, "deleting App "+key.String())
	}
	ctx, stop := context.WithTimeout(ctx, deleteWait)
	defer stop()
	for {
		left, err := w.store.Get(ctx, key)
		if problem.Is(err, problem.NotFound) || err == nil && left.UID != a.UID {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}
