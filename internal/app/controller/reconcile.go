package controller

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// A refusal can end without an event that the agent sees: a foreign object is deleted, or a
	// quota is raised.
	retryRefused = 30 * time.Second
	// behindFor is the delay before another look at an App whose newest version the cache lacks.
	behindFor = 100 * time.Millisecond
)

// Reconcile makes the cluster follow one App and records what it observes. It keeps no state: every
// call starts from what is in the cluster.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !c.election.Leads() {
		return reconcile.Result{}, nil // the Engine requests it when this replica leads
	}
	ctx, done := c.writer.Reconciling(ctx, runnerapi.Key{Namespace: req.Namespace, Name: req.Name})
	result, err := c.reconcile(ctx, req)
	done(err)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // the next Engine starts from what is there
	}
	return result, err
}

func (c *Controller) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	a := &v1alpha1.App{}
	if err := c.store.Cached.Get(ctx, req.NamespacedName, a); err != nil {
		c.contents.forget(req.NamespacedName)
		c.troubles.clear(req.NamespacedName)
		c.collector.Forget(runnerapi.Key{Namespace: req.Namespace, Name: req.Name})
		c.sender.LookForEnds() // one that this replica has not recorded itself
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !a.DeletionTimestamp.IsZero() {
		return c.remove(ctx, a)
	}
	result, err := c.follow(ctx, a)
	return c.conclude(ctx, a, result, err)
}

// follow makes the cluster follow an App that is not deleted, and records what it observes.
func (c *Controller) follow(ctx context.Context, a *v1alpha1.App) (reconcile.Result, error) {
	if err := c.label(ctx, a); err != nil {
		return reconcile.Result{}, err
	}
	blind := c.contents.follow(ctx, a, false)
	if apierrors.IsConflict(blind) {
		return again(blind)
	}
	made, err := c.converge(ctx, a)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: behindFor}, nil // or when the cache gets it
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	revision, err := c.revisionOr(ctx, a, &made)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, recheck, err := c.observe(ctx, a, made, revision)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.overlay(client.ObjectKeyFromObject(a), &status, status.ReadyReplicas > 0)
	if made.refusal != nil {
		recheck = retryRefused
	}
	recheck = diagnose.Sooner(recheck, c.contents.again(a))
	if c.NoRechecks && recheck > time.Second {
		recheck = 0
	}
	if err := c.writeStatus(ctx, a, status); err != nil {
		return reconcile.Result{}, err
	}
	if a.IsStopped() && made.refusal == nil {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // from now on it is held back
	}
	left, err := c.jobs.sweepJob(ctx, a, made)
	if err == nil {
		err = c.writer.Undo(ctx, a)
	}
	if err == nil {
		err = blind // no reason to skip the rest
	}
	if left > 0 && (recheck == 0 || left < recheck) {
		recheck = left
	}
	return reconcile.Result{RequeueAfter: recheck}, err
}

// revisionOr returns the App's newest revision; 0 if the cluster refuses to store it. That refusal
// is then the reason why the App does not match its spec, unless there is another one.
func (c *Controller) revisionOr(ctx context.Context, a *v1alpha1.App, m *made) (int64, error) {
	revision, err := c.history.Current(ctx, a)
	if err == nil {
		return revision, nil
	}
	d, err := refusalOf(err)
	if m.refusal == nil {
		m.refusal = d
	}
	return 0, err
}

// again requeues an App that another client wrote in between, which is not an error.
func again(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// label marks an App that was created with kubectl in the way that Deploy marks Apps.
func (c *Controller) label(ctx context.Context, a *v1alpha1.App) error {
	before := a.DeepCopy()
	changed := false
	for k, v := range objectmeta.AppLabels(a.Name) {
		if a.Labels[k] != v {
			if a.Labels == nil {
				a.Labels = map[string]string{}
			}
			a.Labels[k], changed = v, true
		}
	}
	if !changed {
		return nil
	}
	return c.store.Cached.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(objectmeta.FieldManager))
}

// writeStatus writes what changed. It does not overwrite the status of a newer generation.
func (c *Controller) writeStatus(ctx context.Context, a *v1alpha1.App, status v1alpha1.Status) error {
	c.withSummary(a, &status)
	t, isNew := events.Transition(a, &status, c.now())
	if !isNew && reflect.DeepEqual(a.Status, status) {
		return nil
	}
	before := a.DeepCopy()
	a.Status = status
	a.Status.Unannounced = events.Unannounced(status) // what was announced is saved with the next write and needs none of its own
	if isNew {
		a.Status.Unannounced = append(a.Status.Unannounced, t)
		a.Status.Unannounced = a.Status.Unannounced[max(len(a.Status.Unannounced)-events.KeptTransitions, 0):]
	}
	err := c.store.Cached.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(objectmeta.FieldManager))
	if err != nil {
		a.Status = before.Status // the next announcement starts from what is written
	}
	return err
}
