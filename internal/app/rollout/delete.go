package rollout

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
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
	news, cancel := w.store.Subscribe(key)
	defer cancel()
	uid, err := w.BeginDelete(ctx, key, opts)
	if err != nil || uid == "" || opts.DryRun {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, deleteWait)
	defer stop()
	for {
		left, err := w.store.Get(ctx, key)
		if problem.Is(err, problem.NotFound) || err == nil && left.UID != uid {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

// BeginDelete is Delete without the wait. It returns the UID of the App, or none if the command was
// late.
func (w *Writer) BeginDelete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (uid types.UID, _ error) {
	w.traces.note(ctx, key)
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return "", err
	}
	err := w.races.Run(ctx, key.String(), func() error {
		a, err := w.store.GetLive(ctx, key)
		if err != nil {
			return appcache.ReadProblem(err, key)
		}
		if late, err := opts.Late(ctx); late || err != nil {
			return err
		}
		uid = a.UID
		// In the foreground, the App stays until its objects are gone. Without an agent,
		// Kubernetes' garbage collector ends this.
		return w.writer(opts).Delete(ctx, a, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	})
	return uid, kubeproblem.From(err, "deleting App "+key.String())
}
