package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	workers = 4
	// A refusal can end without an event that the agent sees: a foreign object is deleted, or a
	// quota is raised.
	retryRefused = 30 * time.Second
	maxRetry     = 30 * time.Second
)

// addController registers Reconcile, which runs for an App whenever the App, an object made from
// it, or its namespace changes.
func (e *Engine) addController() error {
	c := builder.ControllerManagedBy(e.mgr).Named("app").Watches(&App{}, onChangedApp())
	for _, o := range append(wholes(), &appsv1.ReplicaSet{}, &batchv1.Job{}, &corev1.Pod{}) {
		c = c.Watches(o, onNewsOfApp())
	}
	return c.WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(e.appsOf)).
		WatchesRawSource(source.Channel(e.leadership.resync, &handler.TypedEnqueueRequestForObject[*App]{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				50*time.Millisecond, maxRetry),
			RecoverPanic: ptr.To(true),
		}).
		Complete(e)
}

// appsOf returns the Apps of a namespace that became managed or ceased to be.
func (e *Engine) appsOf(ctx context.Context, ns client.Object) []reconcile.Request {
	var list List
	if err := e.cached.List(ctx, &list, client.InNamespace(ns.GetName()), untouched); err != nil {
		return nil // the context ended
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile makes the cluster follow one App and records what it observes. It keeps no state: every
// call starts from what is in the cluster.
func (e *Engine) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !e.leadership.leads() {
		return reconcile.Result{}, nil // takeOver reconciles it when this replica leads
	}
	ctx, done := e.traces.reconciling(ctx, runnerapi.Key{Namespace: req.Namespace, Name: req.Name})
	result, err := e.reconcile(ctx, req)
	done(err)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil //nolint:nilerr // the next Engine starts from what is there
	}
	return result, err
}

func (e *Engine) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	a := &App{}
	if err := e.cached.Get(ctx, req.NamespacedName, a); err != nil {
		e.contents.forget(req.NamespacedName)
		e.troubles.clear(req.NamespacedName)
		e.ports.forget(runnerapi.Key{Namespace: req.Namespace, Name: req.Name})
		e.announcer.lookForEnds() // one that this replica has not recorded itself
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !a.DeletionTimestamp.IsZero() {
		return e.remove(ctx, a)
	}
	result, err := e.follow(ctx, a)
	return e.conclude(ctx, a, result, err)
}

// follow makes the cluster follow an App that is not deleted, and records what it observes.
func (e *Engine) follow(ctx context.Context, a *App) (reconcile.Result, error) {
	if err := e.hold(ctx, a); err != nil {
		return reconcile.Result{}, err
	}
	blind := e.followContents(ctx, a, false)
	if apierrors.IsConflict(blind) {
		return again(blind)
	}
	made, err := e.converge(ctx, a)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: behindFor}, nil // or when the cache gets it
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	revision, err := e.revisionOr(ctx, a, &made)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, recheck, err := e.observe(ctx, a, made, revision)
	if err != nil {
		return reconcile.Result{}, err
	}
	e.overlay(client.ObjectKeyFromObject(a), &status, status.ReadyReplicas > 0)
	if made.refusal != nil {
		recheck = retryRefused
	}
	if e.noRechecks && recheck > time.Second {
		recheck = 0
	}
	if err := e.writeStatus(ctx, a, status); err != nil {
		return reconcile.Result{}, err
	}
	if a.stopped() && made.refusal == nil {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil // from now on it is held back
	}
	left, err := e.sweepJob(ctx, a, made)
	if err == nil {
		err = e.undo(ctx, a)
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
func (e *Engine) revisionOr(ctx context.Context, a *App, m *made) (int64, error) {
	revision, err := e.revisionNow(ctx, a)
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

// hold marks an App that was created with kubectl in the way that Deploy marks Apps.
func (e *Engine) hold(ctx context.Context, a *App) error {
	before := a.DeepCopy()
	changed := controllerutil.AddFinalizer(a, finalizer)
	for k, v := range managed.AppLabels(a.Name) {
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
	return e.cached.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(managed.FieldManager))
}

// made is the result of converge.
type made struct {
	workload client.Object        // nil while there is none
	objects  []string             // all that was made, as kind/name
	refusal  *runnerapi.Diagnosis // why the cluster does not follow the spec
}

// converge makes the App's objects match the spec. A problem that needs a change by a user is a
// refusal; any other error is retried.
func (e *Engine) converge(ctx context.Context, a *App) (made, error) {
	if a.Spec.IsPaused() {
		have, err := e.ownWorkload(ctx, a)
		return made{workload: have}, err
	}
	if d, err := e.refuseSpec(ctx, a); d != nil || err != nil {
		have, lookErr := e.ownWorkload(ctx, a)
		return made{workload: have, refusal: d}, errors.Join(err, lookErr)
	}
	if a.stopped() {
		return e.holdBack(ctx, a)
	}
	w, err := e.convergeWorkload(ctx, a)
	if err != nil {
		refusal, err := refusalOf(err)
		if refusal != nil { // for a webhook that is down, the API server names no object
			refusal.Object = cmp.Or(refusal.Object, kindPath(kindOf(blank(a.Spec.Type)), a.Name))
		}
		have, lookErr := e.ownWorkload(ctx, a)
		return made{workload: have, refusal: refusal}, errors.Join(err, lookErr)
	}
	objects, err := e.convergeBesides(ctx, a)
	if err != nil {
		refusal, err := refusalOf(err)
		return made{workload: w, refusal: refusal}, err
	}
	if w != nil {
		objects = append(objects, kindPath(kindOf(w), w.GetName()))
	}
	return made{workload: w, objects: objects}, nil
}

func (e *Engine) convergeWorkload(ctx context.Context, a *App) (client.Object, error) {
	switch a.Spec.Type {
	case runnerapi.TypeJob:
		return e.convergeJob(ctx, a)
	case runnerapi.TypePipeline:
		return e.convergePipeline(ctx, a)
	}
	w := workload(a)
	if err := e.ensure(ctx, a, w); err != nil {
		return w, err
	}
	if s, ok := w.(*appsv1.StatefulSet); ok {
		return w, e.unblock(ctx, a, s)
	}
	return w, nil
}

// convergeBesides makes the objects that accompany the workload, and removes those that are no
// longer wanted.
func (e *Engine) convergeBesides(ctx context.Context, a *App) (wanted []string, err error) {
	for _, o := range besides(a) {
		if err := e.ensure(ctx, a, o); err != nil {
			return nil, err
		}
		wanted = append(wanted, kindPath(kindOf(o), o.GetName()))
	}
	for _, o := range possible(a) {
		if isWorkload(o) || slices.Contains(wanted, kindPath(kindOf(o), o.GetName())) {
			continue
		}
		err := e.cached.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read what belongs to App %s: %w", a.key(), err)
		}
		if err := e.deleteOwn(ctx, a, o); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

func isWorkload(o client.Object) bool {
	switch o.(type) {
	case *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet, *batchv1.Job, *batchv1.CronJob:
		return true
	}
	return false
}

// ownWorkload returns the App's workload, or nil if there is none.
func (e *Engine) ownWorkload(ctx context.Context, a *App) (client.Object, error) {
	o := blank(a.Spec.Type)
	err := e.cached.Get(ctx, client.ObjectKeyFromObject(a), o)
	if apierrors.IsNotFound(err) || err == nil && !owns(a, o) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the workload of App %s: %w", a.key(), err)
	}
	return o, nil
}

// writeStatus writes what changed. It does not overwrite the status of a newer generation.
func (e *Engine) writeStatus(ctx context.Context, a *App, status Status) error {
	t, isNew := transition(a, &status, e.now())
	if !isNew && reflect.DeepEqual(a.Status, status) {
		return nil
	}
	before := a.DeepCopy()
	a.Status = status
	a.Status.Unannounced = unannounced(status) // what was announced is saved with the next write and needs none of its own
	if isNew {
		a.Status.Unannounced = append(a.Status.Unannounced, t)
		a.Status.Unannounced = a.Status.Unannounced[max(len(a.Status.Unannounced)-keptTransitions, 0):]
	}
	err := e.cached.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(managed.FieldManager))
	if err != nil {
		a.Status = before.Status // the next announcement starts from what is written
	}
	return err
}
