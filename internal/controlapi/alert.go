package controlapi

import (
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// AlertEvent is an alert of the cluster's monitoring that fires or is resolved.
type AlertEvent struct {
	Fingerprint string    `json:"fingerprint" minLength:"1" maxLength:"64" pattern:"^[!-~]*$"`
	Name        string    `json:"name" minLength:"1" maxLength:"128"`
	Severity    string    `json:"severity,omitempty" maxLength:"64"`
	Namespace   string    `json:"namespace,omitempty" maxLength:"63" pattern:"^[!-~]*$"`
	App         string    `json:"app,omitempty" maxLength:"253" pattern:"^[!-~]*$"`
	Summary     string    `json:"summary,omitempty" maxLength:"1024"`
	StartedAt   time.Time `json:"startedAt"`
}

// check returns an error for what the schema cannot express.
func (e *Event) check() error {
	isAlert := strings.HasPrefix(e.Type, "alert.")
	if (e.Alert != nil) != isAlert || (e.App != nil) == isAlert {
		return problem.Errorf(problem.Invalid, "send an App with app.*, and an alert with alert.*",
			"the event %s of type %s has data of another type", e.ID, e.Type).WithField("events")
	}
	return nil
}
