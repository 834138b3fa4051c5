package app

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Rollback returns to a revision and stores that as a new revision. By default it returns to the
// previous one; doing that twice restores the original spec.
func (e *Engine) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.RollbackTo, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	e.traces.note(ctx, key)
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	var a *App
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var err error
		if a, err = e.getLive(ctx, key); err != nil {
			return err
		}
		if !a.DeletionTimestamp.IsZero() {
			return beingDeleted(key)
		}
		if !managed.Note(a, opts.Command) {
			return nil
		}
		all, err := e.revise(ctx, a)
		if err != nil {
			return err
		}
		target, err := pick(all, to.Revision)
		if err != nil {
			return err
		}
		return e.goBack(ctx, a, target, note{Runner: opts.Caller.Runner, RequestID: opts.Caller.RequestID}, opts)
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "rolling back App "+key.String())
	}
	return a.Wire(), nil
}

// pick finds the revision to return to.
func pick(all []appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	if number == 0 {
		if len(all) < 2 {
			return nil, problem.Errorf(problem.Conflict, "deploy what it should be instead", "there is no revision before the current one")
		}
		return &all[len(all)-2], nil
	}
	for i := range all {
		if all[i].Revision == number {
			return &all[i], nil
		}
	}
	var have []string
	for _, r := range all {
		have = append(have, strconv.FormatInt(r.Revision, 10))
	}
	return nil, problem.Errorf(problem.NotFound, "use one of "+strings.Join(have, ", "), "there is no revision %d (any more)", number).
		WithField("revision")
}

// goBack writes a revision's spec.
func (e *Engine) goBack(ctx context.Context, a *App, to *appsv1.ControllerRevision, n note, opts runnerapi.WriteOptions) error {
	spec, err := restored(to, a.Spec)
	if err != nil {
		return fmt.Errorf("revision %d of App %s: %w", to.Revision, a.key(), err)
	}
	if opts.Admit != nil {
		brought := spec
		brought.Replicas, brought.Autoscaling = nil, nil // they stay as they are
		if err := opts.Admit(brought); err != nil {
			return err
		}
	}
	n.Restores = to.Revision
	if err := addNote(a, n); err != nil {
		return err
	}
	return e.update(ctx, a, spec, opts)
}

// undo reverts a failed rollout if the App asks for it and there is a revision to return to. It
// does so once: that revision was healthy, and is not reverted again.
func (e *Engine) undo(ctx context.Context, a *App) error {
	if !failedRollout(a) {
		return nil
	}
	fresh, err := e.getLive(ctx, a.key())
	if err != nil || fresh.UID != a.UID || fresh.Generation != a.Generation {
		return client.IgnoreNotFound(err) // another client wrote meanwhile, which causes a new look
	}
	all, err := e.revisionsOf(ctx, fresh)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(r appsv1.ControllerRevision) bool { return r.Revision == a.goesBackTo() })
	if i < 0 {
		return nil
	}
	spec, err := restored(&all[i], fresh.Spec)
	if err != nil || reflect.DeepEqual(spec, fresh.Spec) {
		return err
	}
	reason := a.Status.Diagnosis.DeepCopy()
	reason.LastLines = nil // the program's output is not kept longer than needed
	u := &runnerapi.Undone{Revision: a.Status.Revision, Generation: a.Generation, Restored: all[i].Revision, Diagnosis: reason}
	err = e.goBack(ctx, fresh, &all[i], note{Undone: u}, runnerapi.WriteOptions{})
	if apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		e.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Int64("revision", u.Revision).Int64("restored", u.Restored).
			Str("cause", string(reason.Cause)).Msg("a rollout failed; going back to the last healthy revision")
	}
	return err
}

// failedRollout reports whether the App's newest revision failed before it was ever healthy, and
// must be reverted.
func failedRollout(a *App) bool {
	s := a.Status
	if a.Spec.Rollback != runnerapi.RollbackOnFailure || a.Spec.IsPaused() || !a.observed() || s.Diagnosis == nil {
		return false
	}
	if a.Spec.Type.Runs() {
		return false // a failed run is reported; an older spec would only run again
	}
	if s.Diagnosis.Object == "namespace/"+a.Namespace {
		return false // the spec is not at fault if the namespace is not managed
	}
	if s.Diagnosis.Cause == runnerapi.CauseAutoscalingFailed {
		return false // the pods are fine, and an older spec has the same cluster
	}
	failed := s.Phase == runnerapi.PhaseFailed || s.Phase == runnerapi.PhaseDegraded
	return failed && s.Revision > s.StableRevision && a.goesBackTo() > 0
}

// goesBackTo returns the revision that an automatic rollback restores: the newest one before this
// that was healthy and did not crash later; 0 for none.
func (a *App) goesBackTo() int64 {
	for _, r := range slices.Backward(a.Status.Healthy) {
		if r < a.Status.Revision {
			return r
		}
	}
	return 0
}

func beingDeleted(key runnerapi.Key) error {
	return problem.Errorf(problem.Conflict, "wait until it is gone, then deploy it again", "App %s is being deleted", key)
}
