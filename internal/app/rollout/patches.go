package rollout

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// tryPatches lets the API server check the objects of an App with patches before the App is
// written: the schema of Apps does not say what a patch may contain. Other refusals, such as a
// quota, may pass, and are reported as for every App.
func (w *Writer) tryPatches(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) error {
	if len(spec.Patches) == 0 || opts.DryRun {
		return nil
	}
	opts.DryRun = true
	a, err := w.put(ctx, key, spec, opts)
	if err != nil {
		return nil //nolint:nilerr // the write itself reports it
	}
	err = w.applier.DryRun(ctx, a)
	if problem.Is(err, problem.Invalid) {
		return err
	}
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return nil
	}
	err = kubeproblem.FromObject(err, "trying the patches of App "+key.String())
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	q := *p
	if q.Field != "" {
		q.Detail = "of the patched object, " + q.Field + ": " + q.Detail
	}
	return q.WithField("patches")
}
