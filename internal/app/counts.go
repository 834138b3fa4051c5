package app

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Counts are how the Apps are, for metrics.
type Counts struct {
	// Phases counts the Apps by phase, Causes those that have a diagnosis.
	Phases map[runnerapi.Phase]int
	Causes map[runnerapi.Cause]int
	// Unannounced are the Apps whose state the control plane has not taken yet.
	Unannounced int
}

// Counts looks at the cache alone. Before that is filled there is nothing to count, which is
// not the same as none: ok is false then.
func (e *Engine) Counts(ctx context.Context) (c Counts, ok bool) {
	if !e.Ready() {
		return c, false
	}
	var apps List
	if err := e.cached.List(ctx, &apps, untouched); err != nil {
		return c, false // the context ended
	}
	c.Phases, c.Causes = map[runnerapi.Phase]int{}, map[runnerapi.Cause]int{}
	for i := range apps.Items {
		a := &apps.Items[i]
		c.Phases[a.Status.Phase]++
		if d := a.Status.Diagnosis; d != nil {
			c.Causes[d.Cause]++
		}
		if len(unannounced(a.Status)) > 0 {
			c.Unannounced++
		}
	}
	return c, true
}
