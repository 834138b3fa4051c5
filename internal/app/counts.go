package app

import (
	"cmp"
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Counts are the state of the Apps, for metrics.
type Counts struct {
	// Phases counts the Apps by phase, Causes those that have a diagnosis.
	Phases map[runnerapi.Phase]int
	Causes map[runnerapi.Cause]int
	// Failing are Apps that are Degraded or Failed, by namespace and name: the first [MaxFailing].
	Failing []Failing
	// Unannounced are the Apps whose state the control plane has not taken yet.
	Unannounced int
}

// MaxFailing bounds the Apps that metrics name.
const MaxFailing = 200

// Failing is an App that is not as it was asked to be.
type Failing struct {
	runnerapi.Key
	Phase runnerapi.Phase
	Cause runnerapi.Cause // empty without a diagnosis
}

// Counts looks at the cache alone. Before that is filled there is nothing to count, which is
// not the same as none: ok is false then.
func (e *Engine) Counts(ctx context.Context) (c Counts, ok bool) {
	if !e.store.Ready() {
		return c, false
	}
	var apps v1alpha1.List
	if err := e.store.Cached.List(ctx, &apps, appcache.Untouched); err != nil {
		return c, false // the context ended
	}
	c.Phases, c.Causes = map[runnerapi.Phase]int{}, map[runnerapi.Cause]int{}
	for i := range apps.Items {
		a := &apps.Items[i]
		c.Phases[a.Status.Phase]++
		if d := a.Status.Diagnosis; d != nil {
			c.Causes[d.Cause]++
		}
		if len(events.Unannounced(a.Status)) > 0 {
			c.Unannounced++
		}
	}
	c.Failing = failing(apps.Items)
	return c, true
}

// failing returns the first Apps that are Degraded or Failed, by namespace and name.
func failing(apps []v1alpha1.App) (list []Failing) {
	for i := range apps {
		a := &apps[i]
		if a.Status.Phase != runnerapi.PhaseDegraded && a.Status.Phase != runnerapi.PhaseFailed {
			continue
		}
		f := Failing{Key: runnerapi.Key{Namespace: a.Namespace, Name: a.Name}, Phase: a.Status.Phase}
		if d := a.Status.Diagnosis; d != nil {
			f.Cause = d.Cause
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b Failing) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), MaxFailing)]
}
