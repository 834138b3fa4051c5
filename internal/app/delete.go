package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// finalizer keeps a deleted App until the objects that it made are gone and its end is recorded for
// the announcer.
const finalizer = "pipeops.io/app"

// deleteWait is how long Delete waits for the App to be gone. A longer deletion goes on by itself.
const deleteWait = 20 * time.Second

// Delete removes the App and the objects that it made. It returns when the App and its pods are
// gone, or after a while if the pods take time to stop. No second call is needed.
func (e *Engine) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return err
	}
	a, err := e.getLive(ctx, key)
	if err != nil {
		return kubeproblem.From(err, "deleting App "+key.String())
	}
	if late, err := opts.Late(ctx); late || err != nil {
		return err
	}
	news, cancel := e.hub.subscribe(key)
	defer cancel()
	err = e.writer(opts).Delete(ctx, a, client.Preconditions{UID: &a.UID})
	if err != nil || opts.DryRun {
		return kubeproblem.From(err, "deleting App "+key.String())
	}
	ctx, stop := context.WithTimeout(ctx, deleteWait)
	defer stop()
	for {
		left, err := e.get(ctx, key)
		p := &problem.Error{}
		if errors.As(err, &p) && p.Code == problem.NotFound || err == nil && left.UID != a.UID {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

// remove deletes the objects of a deleted App, records its end, and removes the finalizer once no
// pod is left. Until then the App's status shows what holds it.
func (e *Engine) remove(ctx context.Context, a *App) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(a, finalizer) {
		if len(a.Finalizers) == 0 {
			return reconcile.Result{}, nil
		}
		return e.tellRemains(ctx, a, remains{waits: []string{heldByOthers(a)}})
	}
	left, err := e.takeDown(ctx, a)
	if apierrors.IsForbidden(err) {
		// The agent's rights in the namespace are gone, as they are when the whole namespace is
		// being deleted. Kubernetes removes the rest by the owner references; holding the App would
		// hold the namespace for ever.
		e.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Err(err).
			Msg("leaving what belongs to a deleted App to Kubernetes' garbage collector")
		left, err = remains{}, nil
	}
	if err == nil && len(left.waits) == 0 {
		err = e.forgetRevisions(ctx, a)
	}
	if apierrors.IsForbidden(err) {
		err = nil // the same holds for the revisions
	}
	if err != nil {
		return e.holdUp(ctx, a, err)
	}
	if len(left.waits) > 0 { // an event comes when the rest is gone
		return e.tellRemains(ctx, a, left)
	}
	err = e.announcer.bury(ctx, a)
	if err == nil {
		err = client.IgnoreNotFound(e.letGo(ctx, a))
	}
	if err != nil {
		return e.holdUp(ctx, a, err)
	}
	e.troubles.clear(client.ObjectKeyFromObject(a))
	return reconcile.Result{}, nil
}

// heldByOthers returns what an App still waits for after the agent has removed its finalizer.
func heldByOthers(a *App) string {
	others := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if len(others) == 0 {
		return "Kubernetes to delete what it made"
	}
	return "finalizers of others on the App: " + strings.Join(others, ", ")
}

// letGo removes the finalizer. If another client wrote the App meanwhile, only this step is retried:
// the App's end must not be recorded, and so announced, a second time.
func (e *Engine) letGo(ctx context.Context, a *App) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fresh, err := e.getLive(ctx, a.key())
		if err != nil || fresh.UID != a.UID {
			return err
		}
		before := fresh.DeepCopy()
		controllerutil.RemoveFinalizer(fresh, finalizer)
		return e.live.Patch(ctx, fresh, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(managed.FieldManager))
	})
}

// takeDown deletes the App's own objects and returns what is left of them. It leaves a terminating
// pod until its node has confirmed the end.
func (e *Engine) takeDown(ctx context.Context, a *App) (remains, error) {
	jobs, err := e.pipelineJobs(ctx, a)
	if err != nil {
		return remains{}, err
	}
	var left []client.Object
	for _, j := range jobs {
		left = append(left, j)
	}
	for _, o := range possible(a) {
		err := e.cached.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) || err == nil && !owns(a, o) {
			continue
		}
		if err != nil {
			return remains{}, fmt.Errorf("read what belongs to App %s: %w", a.key(), err)
		}
		left = append(left, o)
	}
	for _, o := range left {
		if err := e.deleteOwn(ctx, a, o); err != nil {
			return remains{}, err
		}
	}
	pods, err := e.podsOf(ctx, a)
	return e.remainsOf(ctx, pods, left), err
}

// deleteOwn deletes exactly this object if it is the App's.
func (e *Engine) deleteOwn(ctx context.Context, a *App, o client.Object) error {
	if !owns(a, o) || !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return e.deleteObject(ctx, o, metav1.DeletePropagationBackground)
}

// deleteObject deletes exactly this object and its dependents: in the background, or before the
// object itself.
func (e *Engine) deleteObject(ctx context.Context, o client.Object, how metav1.DeletionPropagation) error {
	err := e.live.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())}, client.PropagationPolicy(how))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}
