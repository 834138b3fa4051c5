package app

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// EventType is the kind of an event of an App.
type EventType string

// The events of an App's life.
const (
	EventProgressing EventType = "app.progressing"
	EventHealthy     EventType = "app.healthy"
	EventDegraded    EventType = "app.degraded"
	EventFailed      EventType = "app.failed"
	EventRemoved     EventType = "app.removed"
)

// Event reports to the control plane what happened to an App. It leaves out the lines that an App
// wrote before it crashed, which stay inside the cluster.
type Event struct {
	ID         string          `json:"id"` // the same if the same event is sent again
	Type       EventType       `json:"type"`
	Time       time.Time       `json:"time"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Image      string          `json:"image"`
	Generation int64           `json:"generation"`
	Replicas   int32           `json:"replicas"` // desired
	Ready      int32           `json:"ready"`
	Cause      runnerapi.Cause `json:"cause,omitempty"`
	Message    string          `json:"message,omitempty"`
	Fix        string          `json:"fix,omitempty"`

	uid  types.UID
	done Announced // what to record once it was accepted
}

// keptTransitions bounds how many changes of an App wait to be announced. Beyond that, the oldest
// are dropped, and the sequence has a gap.
const keptTransitions = 10

// transition returns the change from the App's state to the new status if it is to be announced. It
// is written together with the status, so an agent that is killed, or cut off from the control
// plane, loses none.
func transition(a *App, s *Status, at time.Time) (Transition, bool) {
	switch s.Phase {
	case "", runnerapi.PhasePaused, // a pause changes nothing that runs
		runnerapi.PhaseDeleting: // its end is announced
		return Transition{}, false
	}
	last := lastKept(a.Status)
	state := Announced{Phase: s.Phase, Generation: a.Generation, Restart: a.restart(), Sequence: last.Sequence}
	if s.Diagnosis != nil {
		state.Cause = s.Diagnosis.Cause
	}
	if state == last {
		return Transition{}, false
	}
	state.Sequence++
	now := *a
	now.Status = *s
	t := Transition{
		Announced: state, At: at.UTC().Format(time.RFC3339), Image: a.Spec.Image, Replicas: now.asked(), Ready: s.ReadyReplicas,
	}
	if d := s.Diagnosis; d != nil {
		t.Message, t.Fix = bounded(d.Message), bounded(d.Fix)
	}
	if u := s.Undone; u != nil && u.Diagnosis != nil && s.Diagnosis == nil {
		t.Undid, t.Fix = u.Diagnosis.Cause, bounded(u.Diagnosis.Fix)
		t.Message = bounded(fmt.Sprintf("went back to revision %d because revision %d failed: %s", u.Restored, u.Revision, u.Diagnosis.Message))
	}
	return t, true
}

// unannounced returns the transitions that the control plane has not accepted yet.
func unannounced(s Status) (waiting []Transition) {
	for _, t := range s.Unannounced {
		if s.Announced == nil || t.Sequence > s.Announced.Sequence {
			waiting = append(waiting, t)
		}
	}
	return waiting
}

// lastKept returns the newest state that was announced or waits for it.
func lastKept(s Status) Announced {
	if waiting := unannounced(s); len(waiting) > 0 {
		return waiting[len(waiting)-1].Announced
	}
	if s.Announced != nil {
		return *s.Announced
	}
	return Announced{}
}

// events returns what is to be announced of the App, in order.
func events(a *App) (all []Event) {
	for _, t := range unannounced(a.Status) {
		ev := event(a, EventType("app."+strings.ToLower(string(t.Phase))), t.Announced)
		ev.Image, ev.Replicas, ev.Ready, ev.Message, ev.Fix = t.Image, t.Replicas, t.Ready, t.Message, t.Fix
		ev.Cause = cmp.Or(t.Cause, t.Undid)
		ev.Time, _ = time.Parse(time.RFC3339, t.At) // written by this program
		all = append(all, ev)
	}
	return all
}

func event(a *App, kind EventType, state Announced) Event {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s/%d/%s/%d/%s/%s", a.UID, state.Sequence, kind, state.Generation, state.Cause, state.Restart)))
	return Event{
		ID: hex.EncodeToString(sum[:16]), Type: kind,
		Namespace: a.Namespace, Name: a.Name, Image: a.Spec.Image, Generation: state.Generation,
		uid: a.UID, done: state,
	}
}

// asked returns the desired number of pods.
func (a *App) asked() int32 {
	if a.Spec.Type.Scales() && !a.scaled() {
		return a.replicas()
	}
	return a.Status.DesiredReplicas
}

// maxText bounds foreign text in a message, so that neither an event nor an App with all waiting
// events is too large.
const maxText = 1000

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// removed returns the last event of an App. It supersedes everything else that waits to be
// announced.
func removed(a *App) Event {
	ev := event(a, EventRemoved, Announced{Generation: a.Generation, Sequence: lastKept(a.Status).Sequence + 1})
	ev.Time = a.DeletionTimestamp.UTC()
	return ev
}
