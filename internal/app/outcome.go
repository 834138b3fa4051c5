package app

import (
	"context"
	"errors"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// keptOutcomes bounds how many an App remembers.
const keptOutcomes = 10

// Settlement is how a generation, or a restart, of an App came out.
//
// +kubebuilder:object:generate=true
type Settlement struct {
	Generation int64                `json:"generation"`
	Restart    string               `json:"restart,omitempty"`
	Phase      runnerapi.Phase      `json:"phase"`
	Diagnosis  *runnerapi.Diagnosis `json:"diagnosis,omitempty"`
}

// settle remembers in the status how the newest spec came out. A failure that
// mends itself becomes a success; a success stays one, whatever breaks later.
func settle(a *App, s *Status, crashed bool) {
	now := runnerapi.App{Generation: a.Generation, Status: s.AppStatus}
	s.noteHealth(crashed)
	if !now.Settled() {
		return
	}
	outcome := Settlement{Generation: a.Generation, Restart: a.restart(), Phase: s.Phase, Diagnosis: s.Diagnosis.DeepCopy()}
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

// noteHealth keeps which revisions were healthy. One that crashes later is none
// of them any more, until it has stayed up again.
func (s *Status) noteHealth(crashed bool) {
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

// proven says whether this revision, with this restart, was healthy and did not
// crash since: pods that are added to it need not stay up for long first.
func (a *App) proven(revision int64) bool {
	return slices.Contains(a.Status.Healthy, revision) && slices.ContainsFunc(a.Status.Outcomes, func(s Settlement) bool {
		return s.Phase == runnerapi.PhaseHealthy && s.Restart == a.restart()
	})
}

// Outcome says what became of a command, from what the cluster holds: any
// replica of the agent can, also one that was started after it.
func (e *Engine) Outcome(ctx context.Context, r runnerapi.Record) (runnerapi.Outcome, error) {
	if !e.Ready() {
		return runnerapi.Outcome{}, notReady()
	}
	a, err := e.get(ctx, r.Target)
	gone := &problem.Error{}
	if errors.As(err, &gone) && gone.Code == problem.NotFound {
		err = nil
	}
	switch {
	case err != nil:
		return runnerapi.Outcome{}, err
	case r.App == nil:
		return outcomeOfDelete(a, r), nil
	case a == nil || string(a.UID) != r.App.UID:
		return runnerapi.Outcome{State: runnerapi.OperationSuperseded, Message: "the App was deleted"}, nil
	}
	return outcomeOf(a, r), nil
}

// outcomeOfDelete asks for nothing but that the App is gone; a namesake that is
// younger than the command is not the one that was meant.
func outcomeOfDelete(a *App, r runnerapi.Record) runnerapi.Outcome {
	switch {
	case a == nil || a.DeletionTimestamp.IsZero() && r.Done:
		return runnerapi.Outcome{State: runnerapi.OperationSucceeded}
	case !a.DeletionTimestamp.IsZero():
		return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "waits for " + a.Wire().Status.WaitingFor}
	}
	return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "it was taken, and nothing is known of it yet"}
}

func outcomeOf(a *App, r runnerapi.Record) runnerapi.Outcome {
	for _, s := range a.Status.Outcomes {
		of := s.Generation == r.App.Generation
		if r.Command == restartApp {
			of = s.Restart == r.App.Restart
		}
		if of {
			if outcome := s.outcome(a, r); outcome.State != runnerapi.OperationPending {
				return outcome
			}
		}
	}
	later := a.Generation > r.App.Generation || r.Command == restartApp && a.restart() != r.App.Restart
	switch {
	case later:
		return runnerapi.Outcome{State: runnerapi.OperationSuperseded, Message: "a later change came before there was an outcome"}
	case a.Spec.IsPaused():
		return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "the App is paused: nothing is rolled out until it is resumed"}
	}
	return runnerapi.Outcome{State: runnerapi.OperationPending}
}

// outcome is that of a command whose rollout came out so.
func (s Settlement) outcome(a *App, r runnerapi.Record) runnerapi.Outcome {
	switch {
	case s.Phase == runnerapi.PhaseHealthy, s.Phase == runnerapi.PhasePaused && r.Command == pauseApp:
		return runnerapi.Outcome{State: runnerapi.OperationSucceeded}
	case s.Phase == runnerapi.PhasePaused:
		return runnerapi.Outcome{State: runnerapi.OperationPending}
	}
	out := runnerapi.Outcome{State: runnerapi.OperationFailed, Diagnosis: s.Diagnosis.DeepCopy()}
	if u := a.Status.Undone; u != nil && u.Generation == s.Generation {
		out.Message = "the agent went back to the last healthy revision"
	}
	return out
}

// The commands whose outcome is not that of their generation's rollout.
const (
	restartApp = "restart-app"
	pauseApp   = "pause-app"
)
