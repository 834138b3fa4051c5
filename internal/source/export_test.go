package source

import (
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// UseClock has a Keeper that does not run yet wait by another clock for its next look at a source.
func (k *Keeper) UseClock(c clock.WithTicker) {
	k.now = c.Now
	k.work.ShutDown()
	k.work = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[runnerapi.Key]{Clock: c})
}

// InBuild renames the field of a build's refusal.
var InBuild = inBuild
