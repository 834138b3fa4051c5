package announce

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Type is the kind of an event. It is the AMQP routing key and, after [TypePrefix], the CloudEvents
// type.
type Type string

// The types of events. Data is an [Agent] for agent.*, an [AppEvent] for app.*, a [RouteEvent] for
// route.* and an [AlertEvent] for alert.*.
const (
	AgentRegistered Type = "agent.registered"
	AgentOnline     Type = "agent.online"
	AgentOffline    Type = "agent.offline"
	AgentUpdated    Type = "agent.updated"
	AgentRemoved    Type = "agent.removed"
	// AgentCloned means that another holder of the agent's identity was seen; the field clones in
	// Data describes it.
	AgentCloned Type = "agent.cloned"

	AppProgressing Type = "app.progressing"
	AppHealthy     Type = "app.healthy"
	AppDegraded    Type = "app.degraded"
	AppFailed      Type = "app.failed"
	AppRemoved     Type = "app.removed"
)

// IsAgent reports whether the event is about an agent itself (Data is an [Agent]).
func (t Type) IsAgent() bool { return strings.HasPrefix(string(t), "agent.") }

// IsApp reports whether the event is about an App (Data is an [AppEvent]).
func (t Type) IsApp() bool { return strings.HasPrefix(string(t), "app.") }

// Event is one announcement.
type Event struct {
	// ID is unique per event: the same event sent twice has the same ID.
	ID   string
	Type Type
	// Source names the control plane's installation and the agent: see [SourceOf].
	Source  string
	AgentID string
	// Sequence orders the events of one agent: each is higher than the one before, also after the
	// control plane's database was restored. Previous is that of the agent's event before, so that
	// a reader sees what it missed; 0 for none.
	Sequence, Previous uint64
	Time               time.Time
	Data               json.RawMessage

	// Runners are the names of the Runners that the event is for. They determine its routing and
	// are not sent.
	Runners []string
}

// AppEvent is the data of app.* events: an App's state as the agent diagnosed it.
type AppEvent struct {
	// Namespace is the App's namespace.
	Namespace string `json:"namespace"`
	// Name is the App's name.
	Name string `json:"name"`
	// Image is the image that the App's spec names.
	Image string `json:"image,omitempty"`
	// Generation counts the changes of the App's spec.
	Generation int64 `json:"generation,omitempty"`
	// Replicas is the wanted number of pods.
	Replicas int `json:"replicas"`
	// Ready is the number of pods that serve.
	Ready int `json:"ready"`
	// LastRun is how the last run of an App ended that runs to its end, such as Succeeded; none
	// before its first. It is empty for all other Apps.
	LastRun string `json:"lastRun,omitempty"`

	// Cause is the diagnosis in one word that never changes, such as ImageNotFound.
	Cause string `json:"cause,omitempty"`
	// Message is what is wrong.
	Message string `json:"message,omitempty"`
	// Fix is what to do about it.
	Fix string `json:"fix,omitempty"`
}

// Pods returns what runs of the App, for people: 2/3 ready, stopped, or the outcome of the last
// run.
func (a *AppEvent) Pods() string {
	switch {
	case a.LastRun != "":
		return "last run: " + a.LastRun
	case a.Replicas == 0:
		return "stopped"
	}
	return fmt.Sprintf("%d/%d ready", min(a.Ready, a.Replicas), a.Replicas)
}

// SourceOf returns the source of an agent's events, as a URI reference. The sequence of CloudEvents
// orders the events of one source.
func SourceOf(installation, agentID string) string {
	return "/installations/" + installation + "/agents/" + agentID
}

// Validate returns an error for the first field with which an App event cannot be announced.
func (a *AppEvent) Validate() error {
	if a.Namespace == "" {
		return fmt.Errorf("namespace: must not be empty")
	}
	if a.Name == "" {
		return fmt.Errorf("name: must not be empty")
	}
	return nil
}

// NewAgentEvent returns an agent.* event about an agent as it is now. The sequence is that of the
// event and of the announced agent. It follows the one before without a gap, unless the caller sets
// Previous.
func NewAgentEvent(t Type, source string, agent Agent, sequence uint64, at time.Time) (Event, error) {
	if !t.IsAgent() {
		return Event{}, fmt.Errorf("make event: type %q is not about an agent", t)
	}
	agent.Sequence = sequence
	if err := agent.Validate(); err != nil {
		return Event{}, fmt.Errorf("make event %s: data.%w", t, err)
	}
	return newEvent(t, source, agent.ID, sequence, at, agent)
}

// NewAppEvent returns an app.* event about an App of an agent.
func NewAppEvent(t Type, source, agentID string, app AppEvent, sequence uint64, at time.Time) (Event, error) {
	if !t.IsApp() {
		return Event{}, fmt.Errorf("make event: type %q is not about an app", t)
	}
	if err := app.Validate(); err != nil {
		return Event{}, fmt.Errorf("make event %s: data.%w", t, err)
	}
	return newEvent(t, source, agentID, sequence, at, app)
}

func newEvent(t Type, source, agentID string, sequence uint64, at time.Time, data any) (Event, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return Event{}, fmt.Errorf("make event %s: %w", t, err)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return Event{}, fmt.Errorf("make event %s: data: %w", t, err)
	}
	e := Event{ID: id.String(), Type: t, Source: source, AgentID: agentID, Sequence: sequence, Previous: max(sequence, 1) - 1, Time: at.UTC(), Data: raw}
	if _, err := e.Encode(); err != nil { // an event that cannot be sent would block all later ones
		return Event{}, fmt.Errorf("make event %s: %w", t, err)
	}
	return e, nil
}

// Agent returns the data of an agent.* event.
func (e *Event) Agent() (Agent, error) {
	var a Agent
	if err := e.read(&a, e.Type.IsAgent(), "an agent"); err != nil {
		return a, err
	}
	if a.ID != e.AgentID {
		return a, fmt.Errorf("event %s: data.id: is another agent's than agentid", e.ID)
	}
	a.Sequence = e.Sequence
	return a, nil
}

// App returns the data of an app.* event.
func (e *Event) App() (a AppEvent, err error) {
	err = e.read(&a, e.Type.IsApp(), "an app")
	return a, err
}

// read decodes and checks the data of an event that is about that.
func (e *Event) read(data interface{ Validate() error }, is bool, about string) error {
	if !is {
		return fmt.Errorf("event %s: type %q is not about %s", e.ID, e.Type, about)
	}
	if err := json.Unmarshal(e.Data, data); err != nil {
		return fmt.Errorf("event %s: data: %w", e.ID, err)
	}
	if err := data.Validate(); err != nil {
		return fmt.Errorf("event %s: data.%w", e.ID, err)
	}
	return nil
}

// subject names what the event is about, for readers that know only CloudEvents.
func (e *Event) subject() string {
	if e.Type.IsApp() {
		if app, err := e.App(); err == nil {
			return e.AgentID + "/" + app.Namespace + "/" + app.Name
		}
	}
	if route, err := e.Route(); err == nil {
		return e.AgentID + "/" + route.Host
	}
	if alert, err := e.Alert(); err == nil && alert.App != "" {
		return e.AgentID + "/" + alert.Namespace + "/" + alert.App
	}
	return e.AgentID
}
