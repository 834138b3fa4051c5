package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Events calls emit for the App's state and for each change of it. It ends once the App has settled
// or, with Follow, once ctx ends. An event's ID is derived from the state, so any replica can
// recognize what a caller has already seen.
func (e *Engine) Events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error {
	if err := e.store.Admit(ctx, key.Namespace); err != nil {
		return err
	}
	news, cancel := e.store.Subscribe(key)
	defer cancel()
	last := runnerapi.AppEvent{ID: opts.After}
	for {
		a, err := e.store.Get(ctx, key)
		switch {
		case ctx.Err() != nil:
			return nil
		case problem.Is(err, problem.NotFound) && last.Name != "":
			return emit(e.removedEvent(last))
		case err != nil:
			return err
		}
		next := e.appEvent(a, last)
		if next.ID != last.ID {
			if err := emit(next); err != nil {
				return err
			}
		}
		last = next
		if last.Settled && !opts.Follow {
			if a, err = e.lastLook(ctx, key); err != nil || reached(a, a.Wire(), 0) { // as in Wait
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-news:
		}
	}
}

// appEvent returns the event that leads from the last one to the App's state.
func (e *Engine) appEvent(a *v1alpha1.App, last runnerapi.AppEvent) runnerapi.AppEvent {
	w := a.Wire()
	ev := runnerapi.AppEvent{
		ID: stateID(a, w.Status), Type: runnerapi.EventProgress, Time: e.now().UTC(), Namespace: w.Namespace, Name: w.Name,
		Generation: w.Generation, Image: w.Spec.Image, Settled: a.Observed() && w.Settled(), Status: w.Status,
	}
	switch {
	case last.Name == "" || last.Status.Phase != w.Status.Phase || last.Generation != w.Generation || last.Settled != ev.Settled:
		ev.Type = runnerapi.EventPhase
	case !sameTrouble(last.Status.Diagnosis, w.Status.Diagnosis):
		ev.Type = runnerapi.EventDiagnosis
	}
	return ev
}

// sameTrouble reports whether two diagnoses are about one problem, regardless of the numbers in
// them: a higher restart count is not a new problem.
func sameTrouble(a, b *runnerapi.Diagnosis) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(withoutFigures(a), withoutFigures(b))
}

// withoutFigures returns the part of a diagnosis that stays the same while the problem does.
func withoutFigures(d *runnerapi.Diagnosis) *runnerapi.Diagnosis {
	return &runnerapi.Diagnosis{Cause: d.Cause, Object: d.Object, Container: d.Container, Fix: d.Fix}
}

// restarting reports whether a container with this problem is restarted again and again, so that
// its pod becomes ready and unready each time.
func restarting(c runnerapi.Cause) bool {
	switch c {
	case runnerapi.CauseCrashLoop, runnerapi.CauseOutOfMemory, runnerapi.CauseProbeFailing, runnerapi.CausePortClash:
		return true
	}
	return false
}

func (e *Engine) removedEvent(last runnerapi.AppEvent) runnerapi.AppEvent {
	last.ID, last.Type, last.Time = "removed", runnerapi.EventRemoved, e.now().UTC()
	return last
}

// stateID identifies a state of an App. What changes with each restart of a container is not part
// of it: an App that flaps is in one state.
func stateID(a *v1alpha1.App, s runnerapi.AppStatus) string {
	s.Restarts = 0
	if d := s.Diagnosis; d != nil {
		if s.Diagnosis = withoutFigures(d); restarting(d.Cause) {
			s.ReadyReplicas = 0
		}
	}
	raw, err := json.Marshal([]any{a.UID, a.Generation, a.RestartedAt(), s})
	if err != nil {
		return "" // impossible: it is sent as JSON too
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:12])
}
