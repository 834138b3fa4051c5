package app

import (
	"context"
	"errors"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// keptOutcomes bounds how many outcomes an App remembers.
const keptOutcomes = 10

// Settlement is the outcome of a generation, or a restart, of an App.
//
// +kubebuilder:object:generate=true
type Settlement struct {
	Generation int64                `json:"generation"`
	Restart    string               `json:"restart,omitempty"`
	Phase      runnerapi.Phase      `json:"phase"`
	Diagnosis  *runnerapi.Diagnosis `json:"diagnosis,omitempty"`
}

// settle records in the status the outcome of the newest spec. A failure that recovers by itself
// becomes a success. A success stays one, even if the App breaks later.
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

// noteHealth keeps the list of healthy revisions. A revision that crashes later leaves it, until it
// has stayed up again.
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

// proven reports whether this revision, with this restart, was healthy and has not crashed since.
// Pods that are added to it then need no stabilization period.
func (a *App) proven(revision int64) bool {
	return slices.Contains(a.Status.Healthy, revision) && slices.ContainsFunc(a.Status.Outcomes, func(s Settlement) bool {
		return s.Phase == runnerapi.PhaseHealthy && s.Restart == a.restart()
	})
}

// Outcome returns the outcome of a command, from what the cluster holds. Any replica of the agent
// can compute it, even one that was started after the command.
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

// outcomeOfDelete only checks that the App is gone. An App of that name that is younger than the
// command is not the one that was deleted.
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

// outcome returns the outcome of a command whose rollout settled this way.
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
