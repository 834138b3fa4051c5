package rollout

import (
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Revisions returns the revisions that Rollback can return to, newest first.
func (w *Writer) Revisions(ctx context.Context, key runnerapi.Key) ([]runnerapi.Revision, error) {
	if err := w.store.Admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	a, err := w.store.GetLive(ctx, key)
	if err != nil {
		return nil, appcache.ReadProblem(err, key)
	}
	all, err := w.history.Keep(ctx, a)
	if err != nil {
		return nil, kubeproblem.From(err, "listing the revisions of App "+key.String())
	}
	out := make([]runnerapi.Revision, 0, len(all))
	for i := range all {
		r := revision.Describe(&all[i])
		r.Current, r.Healthy = i == len(all)-1, slices.Contains(a.Status.Healthy, r.Revision)
		out = append(out, r)
	}
	slices.Reverse(out)
	return out, nil
}
