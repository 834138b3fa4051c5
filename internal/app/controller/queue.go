package controller

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// workersOfNamespace is how many of the workers the Apps of one namespace may have. So one call
// that changes a thousand Apps, such as a new value of a ConfigMap that restarts them, does not
// delay the Apps of other namespaces.
const workersOfNamespace = workers - 1

// turns is a queue that gives each namespace its share of the workers.
type turns struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	lanes *limit.Lanes[reconcile.Request]
}

func newTurns(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) queue {
	return &turns{
		PriorityQueue: priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter }),
		lanes:         limit.NewLanes[reconcile.Request](limit.PerOwner{Namespace: workersOfNamespace}),
	}
}

// Get implements workqueue.TypedInterface.
func (q *turns) Get() (item reconcile.Request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// GetWithPriority returns the next item whose namespace has a worker left.
func (q *turns) GetWithPriority() (item reconcile.Request, priority int, shutdown bool) {
	for {
		item, priority, shutdown = q.PriorityQueue.GetWithPriority()
		if shutdown || q.lanes.Begin(limit.Owner{Namespace: item.Namespace}, item, priority) {
			return item, priority, shutdown
		}
		q.PriorityQueue.Done(item)
	}
}

// Done implements workqueue.TypedInterface. The namespace's next item follows at once.
func (q *turns) Done(item reconcile.Request) {
	turns := q.lanes.End(item)
	q.PriorityQueue.Done(item)
	for _, next := range turns {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &next.Priority}, next.Piece)
	}
}
