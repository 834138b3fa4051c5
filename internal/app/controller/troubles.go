package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// passesIn is how long a temporary error may last before it is reported.
const passesIn = time.Minute

// troubles are the errors that keep Apps from being looked after. An agent that is
// restarted meets them again.
type troubles struct {
	mu sync.Mutex
	of map[types.NamespacedName]trouble
}

type trouble struct {
	since     time.Time
	diagnosis *runnerapi.Diagnosis // nil while it may pass by itself
}

// note records an error, and returns its diagnosis once it must be reported.
func (t *troubles) note(name types.NamespacedName, err error, now time.Time) *runnerapi.Diagnosis {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, is := t.of[name]
	if !is {
		known.since = now
	}
	known.diagnosis, _ = refusalOf(err)
	if known.diagnosis == nil && now.Sub(known.since) >= passesIn {
		known.diagnosis = lasting(err, known.since)
	}
	if t.of == nil {
		t.of = map[types.NamespacedName]trouble{}
	}
	t.of[name] = known
	return known.diagnosis
}

// clear removes the errors of an App, and reports whether one had been reported.
func (t *troubles) clear(name types.NamespacedName) (told bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	told = t.of[name].diagnosis != nil
	delete(t.of, name)
	return told
}

// diagnosis returns the diagnosis of an App's errors, or nil.
func (t *troubles) diagnosis(name types.NamespacedName) *runnerapi.Diagnosis {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of[name].diagnosis
}

// lasting returns the diagnosis of an error that should have passed by itself.
func lasting(err error, since time.Time) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{
		Cause: runnerapi.CauseUnknown, Object: objectOf(err),
		Message: v1alpha1.Bounded(fmt.Sprintf("the agent cannot reconcile the App since %s: %s", since.UTC().Format(time.RFC3339), err)),
		Fix: "the agent keeps trying; look at the Kubernetes API server, and at what the message names " +
			"(kubectl get --raw '/readyz?verbose')",
	}
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Fix != "" {
		d.Fix = p.Fix
	}
	return d
}

// conclude reports in the status an error that kept an App from being reconciled: at once if a
// retry cannot fix it, and otherwise after a while.
func (c *Controller) conclude(ctx context.Context, a *v1alpha1.App, result reconcile.Result, err error) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(a)
	gone := apierrors.IsNotFound(err) && objectOf(err) == workload.KindPath(v1alpha1.Plural, a.Name)
	switch {
	case err == nil:
		if c.troubles.clear(name) { // the status still contains it
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil
		}
		return result, nil
	case ctx.Err() != nil || apierrors.IsConflict(err) || gone:
		return again(err)
	}
	d := c.troubles.note(name, err, c.now())
	if d == nil {
		return reconcile.Result{}, err
	}
	c.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Err(err).Msg("failed to reconcile an App")
	pods, lookErr := c.store.Pods(ctx, a)
	if lookErr != nil {
		return reconcile.Result{}, err
	}
	s := *a.Status.DeepCopy()
	if !a.Observed() {
		s.Revision = 0 // that of this spec is yet to be kept
	}
	c.overlay(name, &s, workload.ReadyPods(pods) > 0)
	s.ObservedGeneration, s.ObservedRestart = a.Generation, a.RestartedAt()
	if err := c.writeStatus(ctx, a, s); err != nil {
		return again(err)
	}
	return reconcile.Result{RequeueAfter: retryRefused}, nil
}

// holdUp reports in the status an error that keeps a deleted App from being removed.
func (c *Controller) holdUp(ctx context.Context, a *v1alpha1.App, err error) (reconcile.Result, error) {
	if ctx.Err() != nil || apierrors.IsConflict(err) {
		return again(err)
	}
	d := c.troubles.note(client.ObjectKeyFromObject(a), err, c.now())
	if d == nil {
		return reconcile.Result{}, err
	}
	c.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Err(err).Msg("failed to delete the objects of a deleted App")
	return c.tellRemains(ctx, a, remains{
		waits: []string{"the cluster to let the agent take it down: " + d.Message + "; " + d.Fix}, recheck: retryRefused,
	})
}

// overlay puts an App's errors into a status that knows of nothing worse.
func (c *Controller) overlay(name types.NamespacedName, s *v1alpha1.Status, serves bool) {
	d := c.troubles.diagnosis(name)
	if d == nil || s.Diagnosis != nil && s.Phase == runnerapi.PhaseFailed {
		return
	}
	s.Diagnosis, s.WaitingFor, s.LastLines, s.Phase = d.DeepCopy(), "", nil, runnerapi.PhaseFailed
	if serves {
		s.Phase = runnerapi.PhaseDegraded
	}
}
