package controller

import (
	"context"
	"fmt"
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

// remove deletes the objects of an App that is deleted in the foreground, and lets the App go once
// no pod is left. Until then the App's status shows what holds it. Kubernetes' garbage collector
// does the same without an agent, but reports nothing, and learns of a new definition late.
func (c *Controller) remove(ctx context.Context, a *v1alpha1.App) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(a, metav1.FinalizerDeleteDependents) {
		if len(a.Finalizers) == 0 {
			return reconcile.Result{}, nil
		}
		return c.tellRemains(ctx, a, remains{waits: []string{"finalizers of others on the App: " + strings.Join(a.Finalizers, ", ")}})
	}
	left, err := c.takeDown(ctx, a)
	if err == nil && len(left.waits) == 0 {
		err = c.history.Forget(ctx, a)
	}
	switch {
	case err != nil:
		return c.holdUp(ctx, a, err)
	case len(left.waits) > 0: // an event comes when the rest is gone
		return c.tellRemains(ctx, a, left)
	}
	if err := client.IgnoreNotFound(c.letGo(ctx, a)); err != nil {
		return c.holdUp(ctx, a, err)
	}
	c.troubles.clear(client.ObjectKeyFromObject(a))
	return reconcile.Result{}, nil
}

// letGo removes the finalizer. If another client wrote the App meanwhile, only this step is
// retried.
func (c *Controller) letGo(ctx context.Context, a *v1alpha1.App) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		fresh, err := c.store.GetLive(ctx, a.Key())
		if err != nil || fresh.UID != a.UID {
			return err
		}
		before := fresh.DeepCopy()
		controllerutil.RemoveFinalizer(fresh, metav1.FinalizerDeleteDependents)
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
		if !o.GetDeletionTimestamp().IsZero() {
			continue
		}
		// In the foreground: without the Deployment, Kubernetes would let the App go before its
		// pods have ended.
		if err := c.store.Delete(ctx, o, metav1.DeletePropagationForeground); err != nil {
			return remains{}, err
		}
	}
	pods, err := c.store.Pods(ctx, a)
	return c.remainsOf(ctx, pods, left), err
}
