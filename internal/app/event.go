package app

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// EventType says what became of an App.
type EventType string

// The events of an App's life.
const (
	EventProgressing EventType = "app.progressing"
	EventHealthy     EventType = "app.healthy"
	EventDegraded    EventType = "app.degraded"
	EventFailed      EventType = "app.failed"
	EventRemoved     EventType = "app.removed"
)

// Event tells the control plane what became of an App. The lines that an App
// wrote before it crashed are left out: they are nobody else's business.
type Event struct {
	ID         string          `json:"id"` // the same when the same event is sent again
	Type       EventType       `json:"type"`
	Time       time.Time       `json:"time"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	Image      string          `json:"image"`
	Generation int64           `json:"generation"`
	Replicas   int32           `json:"replicas"` // asked for
	Ready      int32           `json:"ready"`
	Cause      runnerapi.Cause `json:"cause,omitempty"`
	Message    string          `json:"message,omitempty"`
	Fix        string          `json:"fix,omitempty"`

	uid  types.UID
	done Announced // what to remember once it was accepted
}

// pending is the event that an App's state calls for, or false when that was
// announced already or is not known yet.
func pending(a *App) (Event, bool) {
	if !a.observed() || a.Status.Phase == "" || a.Status.Phase == runnerapi.PhasePaused {
		return Event{}, false // pausing changes nothing of what runs
	}
	last := Announced{}
	if a.Status.Announced != nil {
		last = *a.Status.Announced
	}
	now := Announced{
		Phase: a.Status.Phase, Generation: a.Generation, Restart: a.restart(), Sequence: last.Sequence,
	}
	if a.Status.Diagnosis != nil {
		now.Cause = a.Status.Diagnosis.Cause
	}
	if a.Status.Announced != nil && now == last {
		return Event{}, false
	}
	now.Sequence++
	ev := event(a, EventType("app."+strings.ToLower(string(a.Status.Phase))), now)
	if d := a.Status.Diagnosis; d != nil {
		ev.Cause, ev.Message, ev.Fix = d.Cause, bounded(d.Message), bounded(d.Fix)
	}
	if u := a.Status.Undone; u != nil && u.Diagnosis != nil && a.Status.Diagnosis == nil {
		ev.Cause, ev.Fix = u.Diagnosis.Cause, bounded(u.Diagnosis.Fix)
		ev.Message = bounded(fmt.Sprintf("went back to revision %d because revision %d failed: %s", u.Restored, u.Revision, u.Diagnosis.Message))
	}
	if t := a.Status.LastTransition; t != nil {
		ev.Time = *t
	}
	return ev, true
}

func event(a *App, kind EventType, state Announced) Event {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s/%d/%s/%d/%s/%s", a.UID, state.Sequence, kind, state.Generation, state.Cause, state.Restart)))
	return Event{
		ID: hex.EncodeToString(sum[:16]), Type: kind,
		Namespace: a.Namespace, Name: a.Name, Image: a.Spec.Image, Generation: a.Generation,
		Replicas: a.asked(), Ready: a.Status.ReadyReplicas,
		uid: a.UID, done: state,
	}
}

// asked is the number of pods there should be.
func (a *App) asked() int32 {
	if a.Spec.Type.Scales() && !a.scaled() {
		return a.replicas()
	}
	return a.Status.DesiredReplicas
}

// maxText bounds what others wrote into a message, so that no event is too
// large to be taken.
const maxText = 2000

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// removed is the last event of an App.
func removed(a *App) Event {
	state := Announced{Generation: a.Generation}
	if a.Status.Announced != nil {
		state.Sequence = a.Status.Announced.Sequence
	}
	state.Sequence++
	ev := event(a, EventRemoved, state)
	ev.Replicas, ev.Ready, ev.Time = 0, 0, a.DeletionTimestamp.UTC()
	return ev
}
