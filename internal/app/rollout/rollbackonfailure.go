package rollout

import (
	"context"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Undo reverts a failed rollout if the App asks for it and there is a revision to return to. It
// does so once: that revision was healthy, and is not reverted again.
func (w *Writer) Undo(ctx context.Context, a *v1alpha1.App) error {
	if !failedRollout(a) {
		return nil
	}
	fresh, err := w.store.GetLive(ctx, a.Key())
	if err != nil || fresh.UID != a.UID || fresh.Generation != a.Generation {
		return client.IgnoreNotFound(err) // another client wrote meanwhile, which causes a new look
	}
	all, err := w.history.List(ctx, fresh)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(r appsv1.ControllerRevision) bool { return r.Revision == a.RollbackTarget() })
	if i < 0 {
		return nil
	}
	spec, err := revision.Restored(&all[i], fresh.Spec)
	if err != nil || reflect.DeepEqual(spec, fresh.Spec) {
		return err
	}
	reason := a.Status.Diagnosis.DeepCopy()
	reason.LastLines = nil // the program's output is not kept longer than needed
	u := &runnerapi.Undone{Revision: a.Status.Revision, Generation: a.Generation, Restored: all[i].Revision, Diagnosis: reason}
	err = w.goBack(ctx, fresh, &all[i], revision.Note{Undone: u}, runnerapi.WriteOptions{})
	if apierrors.IsConflict(err) {
		return nil
	}
	if err == nil {
		w.log.Warn().Str("namespace", a.Namespace).Str("app", a.Name).Int64("revision", u.Revision).Int64("restored", u.Restored).
			Str("cause", string(reason.Cause)).Msg("rollout failed; rolling back to the last healthy revision")
	}
	return err
}

// failedRollout reports whether the App's newest revision failed before it was ever healthy, and
// must be reverted.
func failedRollout(a *v1alpha1.App) bool {
	s := a.Status
	if a.Spec.Rollback != runnerapi.RollbackOnFailure || a.Spec.IsPaused() || !a.Observed() || s.Diagnosis == nil {
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
	return failed && s.Revision > s.StableRevision && a.RollbackTarget() > 0
}
