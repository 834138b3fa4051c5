package announce

import (
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

// AlertEvent is the data of alert.* events: an alert of the cluster's Alertmanager. The event's
// time is that at which the alert began to fire, or was resolved.
type AlertEvent struct {
	// Fingerprint identifies the alert. It is the same in firing and resolved, each time.
	Fingerprint string `json:"fingerprint"`
	// Name is the name of the rule.
	Name string `json:"name"`
	// Severity is the rule's label of that name, such as critical or warning.
	Severity string `json:"severity,omitempty"`
	// Namespace is that of the alert's labels: exported_namespace, or else namespace.
	Namespace string `json:"namespace,omitempty"`
	// App is the App that the alert's labels name.
	App string `json:"app,omitempty"`
	// Summary is the rule's annotation of that name.
	Summary string `json:"summary,omitempty"`
	// StartedAt is the time at which it began to fire, by Prometheus' clock.
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
func (e *Event) Alert() (a AlertEvent, err error) {
	err = e.read(&a, e.Type.IsAlert(), "an alert")
	return a, err
}
