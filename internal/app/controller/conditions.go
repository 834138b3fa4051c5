package controller

import (
	"context"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/condition"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// summary returns the conditions that sum up the phase.
func summary(s *v1alpha1.Status) []runnerapi.Condition {
	reason, message := string(s.Phase), s.WaitingFor
	if message != "" {
		message = "waits for " + message
	}
	if d := s.Diagnosis; d != nil {
		reason, message = string(d.Cause), d.Message
	}
	switch {
	case s.Phase == runnerapi.PhaseHealthy, s.Phase == runnerapi.PhasePaused:
		return condition.Summary(condition.Current, reason, message)
	case s.Diagnosis != nil:
		return condition.Summary(condition.Failed, reason, message)
	}
	return condition.Summary(condition.InProgress, reason, message)
}

// withSummary completes the conditions of a status that is to replace another.
func (c *Controller) withSummary(a *v1alpha1.App, s *v1alpha1.Status) {
	sides := slices.DeleteFunc(slices.Clone(s.Conditions), func(c runnerapi.Condition) bool { return c.Type.Sums() })
	s.Conditions = condition.Dated(append(summary(s), sides...), a.Status.Conditions, s.ObservedGeneration, c.now())
}

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
