package announce

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The types of events about alerts of the cluster's monitoring. Data is an [AlertEvent].
const (
	AlertFiring   Type = "alert.firing"
	AlertResolved Type = "alert.resolved"
)

// IsAlert reports whether the event is about an alert (Data is an [AlertEvent]).
func (t Type) IsAlert() bool { return strings.HasPrefix(string(t), "alert.") }

// AlertEvent is what alert.* events carry: an alert of the cluster's Alertmanager, as its rule
// words it. The event's time is that at which it began to fire, or was resolved.
type AlertEvent struct {
	// Fingerprint names the alert: the same in firing and resolved, and each time it fires.
	Fingerprint string `json:"fingerprint"`
	Name        string `json:"name"`
	// Severity is the rule's word, such as critical or warning.
	Severity string `json:"severity,omitempty"`
	// Namespace and App are what the alert is about, where its labels name them.
	Namespace string    `json:"namespace,omitempty"`
	App       string    `json:"app,omitempty"`
	Summary   string    `json:"summary,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// Validate returns an error for the first field with which the event cannot be announced.
func (a *AlertEvent) Validate() error {
	switch {
	case a.Fingerprint == "":
		return fmt.Errorf("fingerprint: must not be empty")
	case a.Name == "":
		return fmt.Errorf("name: must not be empty")
	case a.App != "" && a.Namespace == "":
		return fmt.Errorf("namespace: must not be empty when there is an app")
	}
	return nil
}

// NewAlertEvent returns an alert.* event of an agent.
func NewAlertEvent(t Type, source, agentID string, alert AlertEvent, sequence uint64, at time.Time) (Event, error) {
	if !t.IsAlert() {
		return Event{}, fmt.Errorf("make event: type %q is not about an alert", t)
	}
	if err := alert.Validate(); err != nil {
		return Event{}, fmt.Errorf("make event %s: data.%w", t, err)
	}
	return newEvent(t, source, agentID, sequence, at, alert)
}

// Alert returns the data of an alert.* event.
func (e *Event) Alert() (AlertEvent, error) {
	var a AlertEvent
	if !e.Type.IsAlert() {
		return a, fmt.Errorf("event %s: type %q is not about an alert", e.ID, e.Type)
	}
	if err := json.Unmarshal(e.Data, &a); err != nil {
		return a, fmt.Errorf("event %s: data: %w", e.ID, err)
	}
	if err := a.Validate(); err != nil {
		return a, fmt.Errorf("event %s: data.%w", e.ID, err)
	}
	return a, nil
}
