package rollout

import (
	"context"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// tracedFor is how long after a command what is done for its App counts as its doing.
	tracedFor = 5 * time.Second
	// maxTraced bounds the Apps that are remembered for that.
	maxTraced = 256
)

// traces lets the reconciler continue with a command's trace. It is kept in memory alone: when
// another replica leads, or this one starts again, the trace ends with the command's write.
type traces struct {
	mu sync.Mutex
	of map[runnerapi.Key]tracedChange
}

type tracedChange struct {
	trace span.Later
	at    time.Time
}

// note remembers that a command is about to change an App. Without tracing it does nothing.
func (t *traces) note(ctx context.Context, key runnerapi.Key) {
	later, traced := span.ToGoOn(ctx)
	if !traced {
		return
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[runnerapi.Key]tracedChange{}
	}
	for k, a := range t.of {
		if now.Sub(a.at) > tracedFor {
			delete(t.of, k)
		}
	}
	if len(t.of) < maxTraced {
		t.of[key] = tracedChange{later, now}
	}
}

// reconciling returns a span of the trace that asked for an App's last change, if there was one
// just now.
func (t *traces) reconciling(ctx context.Context, key runnerapi.Key) (context.Context, func(error)) {
	t.mu.Lock()
	a, ok := t.of[key]
	t.mu.Unlock()
	if !ok || time.Since(a.at) > tracedFor {
		return ctx, func(error) {}
	}
	return a.trace.Begin(ctx, "reconcile App")
}

// Reconciling returns a span of the trace that asked for an App's last change, if there was one
// just now.
func (w *Writer) Reconciling(ctx context.Context, key runnerapi.Key) (context.Context, func(error)) {
	return w.traces.reconciling(ctx, key)
}
