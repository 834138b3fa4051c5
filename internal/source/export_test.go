package source

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// UseClock has a Keeper that does not run yet wait by another clock for its next look at a source.
func (k *Keeper) UseClock(c clock.WithTicker) {
	k.now, k.reconciler.now, k.reconciler.journal.now = c.Now, c.Now, c.Now
	k.work.ShutDown()
	k.work = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[runnerapi.Key]{Clock: c})
}

// UseBefore has a Keeper that has no sources yet store its records by another function.
func (k *Keeper) UseBefore(f func(context.Context, runnerapi.AuditRecord) error) {
	k.reconciler.journal.begin = f
}

// InBuild renames the field of a build's refusal.
var InBuild = inBuild
