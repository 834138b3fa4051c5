package controller

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
)

// remove reports in the status of a deleted App what holds it. Kubernetes' garbage collector deletes
// its objects, and lets it go when their pods have ended: it does so without an agent, too.
func (c *Controller) remove(ctx context.Context, a *v1alpha1.App) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(a, metav1.FinalizerDeleteDependents) {
		if len(a.Finalizers) == 0 {
			return reconcile.Result{}, nil
		}
		return c.tellRemains(ctx, a, remains{waits: []string{"finalizers of others on the App: " + strings.Join(a.Finalizers, ", ")}})
	}
	left, err := c.remaining(ctx, a)
	if err != nil || len(left.waits) == 0 {
		return again(err)
	}
	return c.tellRemains(ctx, a, left) // an event comes when the rest is gone
}

// remaining returns what is left of a deleted App's own objects and pods.
func (c *Controller) remaining(ctx context.Context, a *v1alpha1.App) (remains, error) {
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
	pods, err := c.store.Pods(ctx, a)
	return c.remainsOf(ctx, pods, left), err
}
