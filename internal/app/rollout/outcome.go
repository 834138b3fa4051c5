package rollout

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// Outcome returns the outcome of a command, from what the cluster holds. Any replica of the agent
// can compute it, even one that was started after the command.
func (w *Writer) Outcome(ctx context.Context, r backend.Record) (runnerapi.Outcome, error) {
	if !w.store.Ready() {
		return runnerapi.Outcome{}, appcache.NotReady()
	}
	a, err := w.store.Get(ctx, r.Target)
	if err != nil && !problem.Is(err, problem.NotFound) {
		return runnerapi.Outcome{}, err
	}
	if out := outcome(a, r); out.State == runnerapi.OperationPending {
		return out, nil
	}
	// The cache may be behind the command, if another replica carried it out.
	a, err = w.store.GetLive(ctx, r.Target)
	if apierrors.IsNotFound(err) {
		a, err = nil, nil
	}
	if err != nil {
		return runnerapi.Outcome{}, appcache.ReadProblem(err, r.Target)
	}
	return outcome(a, r), nil
}

// outcome returns the outcome of a command by its App; nil for one that does not exist.
func outcome(a *v1alpha1.App, r backend.Record) runnerapi.Outcome {
	switch {
	case r.App == nil:
		return outcomeOfDelete(a, r)
	case a == nil || string(a.UID) != r.App.UID:
		return runnerapi.Outcome{State: runnerapi.OperationSuperseded, Message: "the App was deleted"}
	}
	return outcomeOf(a, r)
}

// outcomeOfDelete only checks that the App is gone. An App of that name that is younger than the
// command is not the one that was deleted.
func outcomeOfDelete(a *v1alpha1.App, r backend.Record) runnerapi.Outcome {
	switch {
	case a == nil || a.DeletionTimestamp.IsZero() && r.Done:
		return runnerapi.Outcome{State: runnerapi.OperationSucceeded}
	case !a.DeletionTimestamp.IsZero():
		return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "waits for " + a.Wire().Status.WaitingFor}
	}
	return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "it was accepted; its outcome is not known yet"}
}

func outcomeOf(a *v1alpha1.App, r backend.Record) runnerapi.Outcome {
	for _, s := range a.Status.Outcomes {
		of := s.Generation == r.App.Generation
		if r.Command == restartApp {
			of = s.Restart == r.App.Restart
		}
		if of {
			if out := outcomeWith(s, a, r); out.State != runnerapi.OperationPending {
				return out
			}
		}
	}
	later := a.Generation > r.App.Generation || r.Command == restartApp && a.RestartedAt() != r.App.Restart
	switch {
	case later:
		return runnerapi.Outcome{State: runnerapi.OperationSuperseded, Message: "a later change came before there was an outcome"}
	case a.Spec.IsPaused():
		return runnerapi.Outcome{State: runnerapi.OperationPending, Message: "the App is paused: nothing is rolled out until it is resumed"}
	}
	return runnerapi.Outcome{State: runnerapi.OperationPending}
}

// outcomeWith returns the outcome of a command whose rollout settled this way.
func outcomeWith(s v1alpha1.Settlement, a *v1alpha1.App, r backend.Record) runnerapi.Outcome {
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
