package rollout

import (
	"context"

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
	return revision.Described(a, all, all[len(all)-1].Revision), nil
}
