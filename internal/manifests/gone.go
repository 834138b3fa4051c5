package manifests

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// goneWait is how long the deletion of a set waits for its objects to be gone with
// their pods. What takes longer continues by itself, and the inventory names it.
const goneWait = 20 * time.Second

// prunedWait is how long a call without a wait looks at what it pruned.
const prunedWait = 2 * time.Second

// awaitGone looks at what was deleted until all of it is gone, the time is up, or ctx ends.
func (r *run) awaitGone(ctx context.Context, limit time.Duration) {
	end := time.Now().Add(limit)
	for next := firstPause; ; next = min(2*next, lastPause) {
		if !r.lookForGone(ctx) || time.Until(end) < next || !retry.Wait(ctx, next) {
			return
		}
	}
}

// lookForGone records for each deleted object what holds it, and returns whether any is left.
func (r *run) lookForGone(ctx context.Context) (left bool) {
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, i := range r.left {
		if i.out.Action != runnerapi.ApplyPruned || i.live == nil {
			continue
		}
		group.Go(func() error {
			uid := i.live.GetUID()
			if err := orAbsent(r.find(ctx, i)); err != nil {
				i.out.State, i.out.Message = runnerapi.ObjectUnknown, asProblem(err).Detail
				return nil
			}
			if i.live == nil || i.live.GetUID() != uid {
				i.live, i.out.State, i.out.Message = nil, "", ""
				return nil
			}
			now, _ := workloadhealth.Going(ctx, r.api.objects, i.live)
			i.out.State, i.out.Message = runnerapi.ObjectInProgress, clip(cmp.Or(now.Message, "waits for Kubernetes to delete it"))
			i.live = identityOf(i.live)
			return nil
		})
	}
	_ = group.Wait() // none fails
	return slices.ContainsFunc(r.left, going)
}

// going reports whether an object was deleted and is still there.
func going(i *item) bool { return i.out.Action == runnerapi.ApplyPruned && i.out.State != "" }
