package announce

import (
	"fmt"
	"strings"
	"time"
)

// The types of events about public hosts. Data is a [RouteEvent].
const (
	RouteServing   Type = "route.serving"
	RouteSuspended Type = "route.suspended"
)

// IsRoute reports whether the event is about a public host (Data is a [RouteEvent]).
func (t Type) IsRoute() bool { return strings.HasPrefix(string(t), "route.") }

// RouteEvent is the data of route.* events: a public host that the gateway serves from the agent,
// or no longer serves.
type RouteEvent struct {
	// Host is the public host.
	Host string `json:"host"`
	// Namespace is that of the object that names the host.
	Namespace string `json:"namespace,omitempty"`
	// App is the App of the host. It is absent if a chart, a set or a source has it.
	App string `json:"app,omitempty"`
	// Reason is why the host is no longer served: the agent withdrew it, lost its proof, or another
	// agent has a better one.
	Reason string `json:"reason,omitempty"`
}

// Validate returns an error for the first field with which the event cannot be announced.
func (r *RouteEvent) Validate() error {
	if r.Host == "" {
		return fmt.Errorf("host: must not be empty")
	}
	return nil
}

// NewRouteEvent returns a route.* event about a public host of an agent.
func NewRouteEvent(t Type, source, agentID string, route RouteEvent, sequence uint64, at time.Time) (Event, error) {
	if !t.IsRoute() {
		return Event{}, fmt.Errorf("make event: type %q is not about a route", t)
	}
	if err := route.Validate(); err != nil {
		return Event{}, fmt.Errorf("make event %s: data.%w", t, err)
	}
	return newEvent(t, source, agentID, sequence, at, route)
}

// Route returns the data of a route.* event.
func (e *Event) Route() (r RouteEvent, err error) {
	err = e.read(&r, e.Type.IsRoute(), "a route")
	return r, err
}
