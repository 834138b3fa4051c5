package runnerapi

import (
	"strings"
	"time"
)

// Drift counts the foreign changes to an App's objects that the agent reverted, and describes the
// last one.
type Drift struct {
	Corrections int64     `json:"corrections" doc:"How often something was put back since the App was made."`
	LastAt      time.Time `json:"lastAt" doc:"When something was put back last."`
	Object      string    `json:"object" doc:"What was put back last, as kind/name."`
	Deleted     bool      `json:"deleted,omitempty" doc:"It had been deleted."`
	Fields      []string  `json:"fields,omitempty" doc:"Names of the fields that had another value, at most ten. Values are not told."`
}

// What describes in a few words what was reverted last.
func (d Drift) What() string {
	switch {
	case d.Deleted:
		return d.Object + " was deleted"
	case len(d.Fields) == 0:
		return d.Object + " was changed"
	}
	return d.Object + " was changed (" + strings.Join(d.Fields, ", ") + ")"
}
