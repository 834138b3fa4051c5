package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// remove deletes the objects of a deleted App, records its end, and removes the finalizer once no
// pod is left. Until then the App's status shows what holds it.
func (c *Controller) remove(ctx context.Context, a *v1alpha1.App) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(a, v1alpha1.Finalizer) {
		if len(a.Finalizers) == 0 {
			return reconcile.Result{}, nil
		}
		return c.tellRemains(ctx, a, remains{waits: []string{heldByOthers(a)}})
	}
	left, err := c.takeDown(ctx, a)
	if apierrors.IsForbidden(err) {
		// The agent's rights in the namespace are gone, as they are when the whole namespace is
		// being deleted. Kubernetes removes the rest by the owner references; holding the App would
		// hold the namespace for ever.
		c.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Err(err).
			Msg("leaving the objects of a deleted App to Kubernetes' garbage collector")
		left, err = remains{}, nil
	}
	if err == nil && len(left.waits) == 0 {
		err = c.history.Forget(ctx, a)
	}
	if apierrors.IsForbidden(err) {
		err = nil // the same holds for the revisions
	}
	if err != nil {
		return c.holdUp(ctx, a, err)
	}
	if len(left.waits) > 0 { // an event comes when the rest is gone
		return c.tellRemains(ctx, a, left)
	}
	err = c.sender.Bury(ctx, a)
	if err == nil {
		err = client.IgnoreNotFound(c.letGo(ctx, a))
	}
	if err != nil {
		return c.holdUp(ctx, a, err)
	}
	c.troubles.clear(client.ObjectKeyFromObject(a))
	return reconcile.Result{}, nil
}

// heldByOthers returns what an App still waits for after the agent has removed its finalizer.
func heldByOthers(a *v1alpha1.App) string {
	others := slices.DeleteFunc(slices.Clone(a.Finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	if len(others) == 0 {
		return "Kubernetes to delete what it made"
	}
	return "finalizers of others on the App: " + strings.Join(others, ", ")
}

// letGo removes the finalizer. If another client wrote the App meanwhile, only this step is
// retried: the App's end must not be recorded, and so announced, a second time.
func (c *Controller) letGo(ctx context.Context, a *v1alpha1.App) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fresh, err := c.store.GetLive(ctx, a.Key())
		if err != nil || fresh.UID != a.UID {
			return err
		}
		before := fresh.DeepCopy()
		controllerutil.RemoveFinalizer(fresh, v1alpha1.Finalizer)
		return c.store.Live.Patch(ctx, fresh, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(objectmeta.FieldManager))
	})
}

// takeDown deletes the App's own objects and returns what is left of them. It leaves a terminating
// pod until its node has confirmed the end.
func (c *Controller) takeDown(ctx context.Context, a *v1alpha1.App) (remains, error) {
	jobs, err := c.jobs.pipelineJobs(ctx, a)
	if err != nil {
		return remains{}, err
	}
	var left []client.Object
	for _, j := range jobs {
		left = append(left, j)
	}
	for _, o := range workload.Possible(a) {
		err := c.store.Cached.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) || err == nil && !workload.Owns(a, o) {
			continue
		}
		if err != nil {
			return remains{}, fmt.Errorf("read what belongs to App %s: %w", a.Key(), err)
		}
		left = append(left, o)
	}
	for _, o := range left {
		if err := c.store.DeleteOwn(ctx, a, o); err != nil {
			return remains{}, err
		}
	}
	pods, err := c.store.Pods(ctx, a)
	return c.remainsOf(ctx, pods, left), err
}
