package rollout

import (
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// keptOutcomes bounds how many outcomes an App remembers.
const keptOutcomes = 10

// Settle records in the status the outcome of the newest spec. A failure that recovers by itself
// becomes a success. A success stays one, even if the App breaks later.
func Settle(a *v1alpha1.App, s *v1alpha1.Status, crashed bool) {
	now := runnerapi.App{Generation: a.Generation, Status: s.AppStatus}
	noteHealth(s, crashed)
	if !now.Settled() {
		return
	}
	outcome := v1alpha1.Settlement{Generation: a.Generation, Restart: a.RestartedAt(), Phase: s.Phase, Diagnosis: s.Diagnosis.DeepCopy()}
	if outcome.Diagnosis != nil {
		outcome.Diagnosis.LastLines = nil
	}
	for i, earlier := range s.Outcomes {
		if earlier.Generation == outcome.Generation && earlier.Restart == outcome.Restart {
			if earlier.Phase != runnerapi.PhaseHealthy {
				s.Outcomes[i] = outcome
			}
			return
		}
	}
	s.Outcomes = append(s.Outcomes, outcome)
	s.Outcomes = s.Outcomes[max(len(s.Outcomes)-keptOutcomes, 0):]
}

// noteHealth keeps the list of healthy revisions. A revision that crashes later leaves it, until it
// has stayed up again.
func noteHealth(s *v1alpha1.Status, crashed bool) {
	healthy := s.Phase == runnerapi.PhaseHealthy && s.Revision > 0
	switch {
	case crashed:
		s.Healthy = slices.DeleteFunc(s.Healthy, func(r int64) bool { return r == s.Revision })
	case healthy && !slices.Contains(s.Healthy, s.Revision):
		s.Healthy = append(s.Healthy, s.Revision)
		s.Healthy = s.Healthy[max(len(s.Healthy)-keptOutcomes, 0):]
	}
	if healthy {
		s.StableRevision = s.Revision
	}
}

// Proven reports whether this revision, with this restart, was healthy and has not crashed since.
// Pods that are added to it then need no stabilization period.
func Proven(a *v1alpha1.App, revision int64) bool {
	return slices.Contains(a.Status.Healthy, revision) && slices.ContainsFunc(a.Status.Outcomes, func(s v1alpha1.Settlement) bool {
		return s.Phase == runnerapi.PhaseHealthy && s.Restart == a.RestartedAt()
	})
}
