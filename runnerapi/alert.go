package runnerapi

import "time"

// MaxAlerts is how many alerts one answer has.
const MaxAlerts = 500

// States of an alert.
const (
	AlertFiring  = "firing"
	AlertPending = "pending" // its condition holds, but not for long enough yet
)

// Alert is an alert of the cluster's Prometheus that is active.
type Alert struct {
	Name        string            `json:"name"`
	State       string            `json:"state" enum:"firing,pending"`
	Severity    string            `json:"severity,omitempty" doc:"As the rule words it." example:"warning"`
	Namespace   string            `json:"namespace,omitempty" doc:"What it is about; absent for the cluster."`
	App         string            `json:"app,omitempty" doc:"App that it is about, if its labels name one."`
	Summary     string            `json:"summary,omitempty"`
	Description string            `json:"description,omitempty"`
	ActiveAt    time.Time         `json:"activeAt,omitzero" doc:"Since when its condition holds."`
	Labels      map[string]string `json:"labels,omitempty"`
}

// AlertList lists alerts.
type AlertList struct {
	Items   []Alert `json:"items" nullable:"false" doc:"Firing ones first, then by their severity and time."`
	Omitted int     `json:"omitted,omitempty" doc:"Alerts that are left out, because there are more than 500."`
}
