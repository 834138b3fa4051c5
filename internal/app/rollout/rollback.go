package rollout

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Rollback returns to a revision and stores that as a new revision. By default it returns to the
// newest healthy one before the current one, or to the previous one if none is known as healthy.
func (w *Writer) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.RollbackTo, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	w.traces.note(ctx, key)
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	var a *v1alpha1.App
	err := w.races.Run(ctx, key.String(), func() error {
		var err error
		if a, err = w.store.GetLive(ctx, key); err != nil {
			return appcache.ReadProblem(err, key)
		}
		if !a.DeletionTimestamp.IsZero() {
			return beingDeleted(key)
		}
		if !objectmeta.RecordCommand(a, opts.Command) {
			return nil
		}
		all, err := w.history.Keep(ctx, a)
		if err != nil {
			return err
		}
		target, err := pick(a, all, to.Revision)
		if err != nil {
			return err
		}
		return w.goBack(ctx, a, target, revision.NoteBy(opts), opts)
	})
	if err != nil {
		return runnerapi.App{}, kubeproblem.From(err, "rolling back App "+key.String())
	}
	return a.Wire(), nil
}

// pick finds the revision to return to, of all in order.
func pick(a *v1alpha1.App, all []appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	target, found := runnerapi.RollbackTarget(revision.Described(a, all, all[len(all)-1].Revision), number)
	for i := range all {
		if found && all[i].Revision == target.Revision {
			return &all[i], nil
		}
	}
	if number == 0 {
		return nil, problem.Errorf(problem.Conflict, "deploy what it should be instead", "there is no revision before the current one")
	}
	var have []string
	for _, r := range all {
		have = append(have, strconv.FormatInt(r.Revision, 10))
	}
	return nil, problem.Errorf(problem.NotFound, "use one of "+strings.Join(have, ", "), "there is no revision %d (any more)", number).
		WithField("revision")
}

// goBack writes a revision's spec.
func (w *Writer) goBack(ctx context.Context, a *v1alpha1.App, to *appsv1.ControllerRevision, n revision.Note, opts runnerapi.WriteOptions) error {
	spec, err := revision.Restored(to, a.Spec)
	if err != nil {
		return fmt.Errorf("revision %d of App %s: %w", to.Revision, a.Key(), err)
	}
	if opts.Admit != nil {
		brought := spec
		brought.Replicas, brought.Autoscaling = nil, nil // they stay as they are
		if err := opts.Admit(brought); err != nil {
			return err
		}
	}
	if n.Undone == nil { // a Runner's command
		if err := w.store.AdmitSize(ctx, a.Key(), spec); err != nil {
			return err
		}
	}
	n.Restores = to.Revision
	if err := revision.AddNote(a, n); err != nil {
		return err
	}
	return w.update(ctx, a, spec, opts)
}

func beingDeleted(key runnerapi.Key) error {
	return problem.Errorf(problem.Busy, "wait until it is gone, then deploy it again", "App %s is being deleted", key)
}
