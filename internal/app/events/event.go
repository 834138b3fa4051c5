package events

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Type is the kind of an event of an App.
type Type string

// The events of an App's life.
const (
	Progressing Type = "app.progressing"
	Healthy     Type = "app.healthy"
	Degraded    Type = "app.degraded"
	Failed      Type = "app.failed"
	Removed     Type = "app.removed"
)

// Event reports to the control plane what happened to an App. It leaves out the lines that an App
// wrote before it crashed, which stay inside the cluster.
type Event struct {
	ID         string          `json:"id"` // the same if the same event is sent again
	Type       Type            `json:"type"`
	Time       time.Time       `json:"time"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Image      string          `json:"image"`
	Generation int64           `json:"generation"`
	Replicas   int32           `json:"replicas"` // desired
	Ready      int32           `json:"ready"`
	LastRun    string          `json:"lastRun,omitempty"` // of an App that runs to its end
	Cause      runnerapi.Cause `json:"cause,omitempty"`
	Message    string          `json:"message,omitempty"`
	Fix        string          `json:"fix,omitempty"`

	uid  types.UID
	done v1alpha1.Announced // what to record once it was accepted
}

// KeptTransitions bounds how many changes of an App wait to be announced. Beyond that, the oldest
// are dropped, and the sequence has a gap.
const KeptTransitions = 10

// Transition returns the change from the App's state to the new status if it is to be announced. It
// is written together with the status, so an agent that is killed, or cut off from the control
// plane, loses none.
func Transition(a *v1alpha1.App, s *v1alpha1.Status, at time.Time) (v1alpha1.Transition, bool) {
	switch s.Phase {
	case "", runnerapi.PhasePaused, // a pause changes nothing that runs
		runnerapi.PhaseDeleting: // its end is announced
		return v1alpha1.Transition{}, false
	}
	last := lastKept(a.Status)
	state := v1alpha1.Announced{Phase: s.Phase, Generation: a.Generation, Restart: a.RestartedAt(), Sequence: last.Sequence}
	if s.Diagnosis != nil {
		state.Cause = s.Diagnosis.Cause
	}
	if state == last {
		return v1alpha1.Transition{}, false
	}
	state.Sequence++
	now := *a
	now.Status = *s
	t := v1alpha1.Transition{
		Announced: state, At: at.UTC().Format(time.RFC3339), Image: a.Spec.Image, Replicas: desiredReplicas(&now), Ready: s.ReadyReplicas,
	}
	if d := s.Diagnosis; d != nil {
		t.Message, t.Fix = v1alpha1.Bounded(d.Message), v1alpha1.Bounded(d.Fix)
	}
	if u := s.Undone; u != nil && u.Diagnosis != nil && s.Diagnosis == nil {
		t.Undid, t.Fix = u.Diagnosis.Cause, v1alpha1.Bounded(u.Diagnosis.Fix)
		t.Message = v1alpha1.Bounded(fmt.Sprintf("went back to revision %d because revision %d failed: %s", u.Restored, u.Revision, u.Diagnosis.Message))
	}
	return t, true
}

// Unannounced returns the transitions that the control plane has not accepted yet.
func Unannounced(s v1alpha1.Status) (waiting []v1alpha1.Transition) {
	for _, t := range s.Unannounced {
		if s.Announced == nil || t.Sequence > s.Announced.Sequence {
			waiting = append(waiting, t)
		}
	}
	return waiting
}

// lastKept returns the newest state that was announced or waits for it.
func lastKept(s v1alpha1.Status) v1alpha1.Announced {
	if waiting := Unannounced(s); len(waiting) > 0 {
		return waiting[len(waiting)-1].Announced
	}
	if s.Announced != nil {
		return *s.Announced
	}
	return v1alpha1.Announced{}
}

// events returns what is to be announced of the App, in order.
func events(a *v1alpha1.App) (all []Event) {
	for _, t := range Unannounced(a.Status) {
		ev := event(a, typeOf(t.Phase), t.Announced)
		ev.Image, ev.Replicas, ev.Ready, ev.Message, ev.Fix = t.Image, t.Replicas, t.Ready, t.Message, t.Fix
		ev.Cause = cmp.Or(t.Cause, t.Undid)
		ev.Time, _ = time.Parse(time.RFC3339, t.At) // written by this program
		all = append(all, ev)
	}
	return all
}

func typeOf(phase runnerapi.Phase) Type { return Type("app." + strings.ToLower(string(phase))) }

func event(a *v1alpha1.App, kind Type, state v1alpha1.Announced) Event {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s/%d/%s/%d/%s/%s", a.UID, state.Sequence, kind, state.Generation, state.Cause, state.Restart)))
	ev := Event{
		ID: hex.EncodeToString(sum[:16]), Type: kind,
		Namespace: a.Namespace, Name: a.Name, Image: a.Spec.Image, Generation: state.Generation,
		uid: a.UID, done: state,
	}
	if a.Spec.Type.Runs() {
		ev.LastRun = a.Wire().Ready()
	}
	return ev
}

// desiredReplicas returns the desired number of pods.
func desiredReplicas(a *v1alpha1.App) int32 {
	if a.Spec.Type.Scales() && !a.Autoscaled() {
		return a.Replicas()
	}
	return a.Status.DesiredReplicas
}

// removed returns the last event of an App. It supersedes everything else that waits to be
// announced.
func removed(a *v1alpha1.App, now time.Time) Event {
	ev := event(a, Removed, v1alpha1.Announced{Generation: a.Generation, Sequence: lastKept(a.Status).Sequence + 1})
	ev.Time = now.UTC()
	if a.DeletionTimestamp != nil {
		ev.Time = a.DeletionTimestamp.UTC()
	}
	return ev
}
