package controller

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// conditions writes into the status what does not affect the phase, and returns when to look again.
func (c *Controller) conditions(ctx context.Context, a *v1alpha1.App, m made, s *v1alpha1.Status) (time.Duration, error) {
	s.Conditions, s.PublicURLs = nil, nil
	if m.workload == nil {
		return 0, nil
	}
	if schedule := a.Spec.Schedule; schedule != nil && a.Spec.Type == runnerapi.TypeCronJob {
		c := runnerapi.ConditionScheduled.True(runnerapi.ReasonScheduleApplies)
		if schedule.Suspended {
			c = runnerapi.ConditionScheduled.False(runnerapi.ReasonSuspended,
				"no run starts: the schedule is suspended", "set schedule.suspended to false")
		}
		s.Conditions = append(s.Conditions, *c)
	}
	return c.router.Served(ctx, a, s)
}
