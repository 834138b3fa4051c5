package runnerapi

import (
	"fmt"
	"time"
)

// RollbackPolicy is what the agent does automatically when a rollout fails.
type RollbackPolicy string

// RollbackOnFailure goes back to the last revision that was healthy and did not crash since.
const RollbackOnFailure RollbackPolicy = "onFailure"

// DefaultRevisionHistory is how many revisions of an App are kept.
const DefaultRevisionHistory = 10

// Revision is a former spec of an App. Its number is the App's generation from which on it held.
// Changes of what a rollback leaves alone (the number of pods, paused) make no revision.
type Revision struct {
	Revision  int64     `json:"revision" doc:"Number of the revision: the App's generation from which on it held."`
	Current   bool      `json:"current" doc:"Whether the App has this revision now."`
	Healthy   bool      `json:"healthy" doc:"Whether it was healthy and did not crash since: an automatic rollback goes to the newest such revision."`
	Image     string    `json:"image"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Runner    string    `json:"runner,omitempty" doc:"The Runner that made it; empty for a user with access to the cluster."`
	Actor     string    `json:"actor,omitempty" doc:"Who acted as the Runner, as in the audit log."`
	RequestID string    `json:"requestId,omitempty" doc:"Request-Id of the call that made it."`
	Commit    string    `json:"commit,omitempty" doc:"The Git commit that a source took it from."`
	Identical bool      `json:"identical,omitempty" doc:"Whether it is not the current one and has the same spec, so that a rollback to it changes nothing."`
	Restores  int64     `json:"restores,omitempty" doc:"The revision that this one went back to."`
	Undid     int64     `json:"undid,omitempty" doc:"The failed revision that the agent undid by this one."`
	Changes   []Change  `json:"changes" nullable:"false" doc:"What differs from the revision before. Values only where they cannot be secret."`
}

// By returns who made the revision: the Runner, and the operator who acted as it.
func (r Revision) By() string { return by(r.Runner, r.Actor) }

// Caution returns what to know before an App goes back to the revision; empty for nothing.
func (r Revision) Caution() string {
	switch {
	case r.Revision == 0: // it is not kept any more
		return ""
	case r.Current:
		return fmt.Sprintf("revision %d is the current one: a rollback to it changes nothing", r.Revision)
	case r.Identical:
		return fmt.Sprintf("revision %d has the spec of the current one: a rollback to it changes nothing", r.Revision)
	case !r.Healthy:
		return fmt.Sprintf("revision %d is not known to have been healthy: it failed, or was replaced before", r.Revision)
	}
	return ""
}

// RollbackTarget returns the revision to which a rollback goes, of all, newest first. The number 0
// is for the newest healthy one before the current one, or the previous one if none was healthy.
func RollbackTarget(all []Revision, number int64) (Revision, bool) {
	for i, r := range all {
		if number == r.Revision || number == 0 && i > 0 && r.Healthy {
			return r, true
		}
	}
	if number == 0 && len(all) > 1 {
		return all[1], true
	}
	return Revision{}, false
}

// Change is a field that differs between two revisions.
type Change struct {
	Field string `json:"field" doc:"JSON path of the field; a variable of env by its name." example:"image"`
	Kind  string `json:"kind" enum:"added,removed,changed"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// RevisionList lists the revisions that an App can return to.
type RevisionList struct {
	Items []Revision `json:"items" nullable:"false" doc:"Newest first."`
}

// RollbackTo is the body of the rollback call.
type RollbackTo struct {
	Revision int64 `json:"revision,omitempty" maximum:"9007199254740991" minimum:"0" doc:"The revision to go back to. When absent: the newest healthy one before the current one, or the previous one if none is known as healthy."`
}

// Undone is a failed rollout that the agent took back by itself.
//
// +kubebuilder:object:generate=true
type Undone struct {
	Revision   int64      `json:"revision" doc:"The revision that failed."`
	Generation int64      `json:"generation" doc:"The App's generation when it failed."`
	Restored   int64      `json:"restored" doc:"The revision that was gone back to."`
	Diagnosis  *Diagnosis `json:"diagnosis,omitempty" doc:"Why it failed."`
}

// Undone returns the failure because of which the spec of this generation was reverted, or nil. If
// it is not nil, the App's status describes the older spec.
func (a App) Undone(generation int64) *Undone {
	u := a.Status.Undone
	if u == nil || u.Generation < generation || a.Generation <= u.Generation {
		return nil
	}
	return u
}

// OperationState is how far a command has come.
type OperationState string

// The states of an operation.
const (
	OperationPending    OperationState = "pending"    // no outcome yet
	OperationSucceeded  OperationState = "succeeded"  // done; of a rollout: the App was healthy with it
	OperationFailed     OperationState = "failed"     // the rollout failed, and Diagnosis says why
	OperationSuperseded OperationState = "superseded" // a later command came before there was an outcome
)

// Operation is an accepted write, and its outcome.
type Operation struct {
	ID         string         `json:"id"`
	Command    string         `json:"command" doc:"The call, by its operationId in the API's document." example:"put-app"`
	State      OperationState `json:"state" enum:"pending,succeeded,failed,superseded"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name,omitempty"`
	Generation int64          `json:"generation,omitempty" doc:"The App's generation that the command made."`
	Runner     string         `json:"runner" doc:"Who sent the command."`
	RequestID  string         `json:"requestId"`
	StartedAt  time.Time      `json:"startedAt,omitzero"`
	Message    string         `json:"message,omitempty" doc:"Why the state is what it is, where that needs saying."`
	Diagnosis  *Diagnosis     `json:"diagnosis,omitempty" doc:"What is wrong, when the state is failed."`
}

// AppEventType is the kind of an AppEvent.
type AppEventType string

// The types of an AppEvent.
const (
	EventPhase     AppEventType = "phase"     // the phase, or what it speaks of, is another; also the first event
	EventProgress  AppEventType = "progress"  // pods came, went or became ready
	EventDiagnosis AppEventType = "diagnosis" // something else is wrong, or nothing any more
	EventRemoved   AppEventType = "removed"   // the App is gone; the last event
)

// AppEvent is a change of an App, with the complete state after it: a caller that misses one loses
// only the intermediate state.
type AppEvent struct {
	ID         string       `json:"id" doc:"Tells states apart: give it as Last-Event-ID, and what you have is not sent again."`
	Type       AppEventType `json:"type" enum:"phase,progress,diagnosis,removed"`
	Time       time.Time    `json:"time,omitzero"`
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	Generation int64        `json:"generation"`
	Image      string       `json:"image"`
	Settled    bool         `json:"settled" doc:"Whether the newest spec has come to its outcome."`
	Status     AppStatus    `json:"status"`
}

// EventOptions select events.
type EventOptions struct {
	Follow bool   // go on after the App has settled
	After  string // ID of the last event that was seen
}

// Outcome is the outcome of a command.
type Outcome struct {
	State     OperationState `json:"state" enum:"pending,succeeded,failed,superseded"`
	Message   string         `json:"message,omitempty" doc:"Why the state is what it is, where that needs saying."`
	Diagnosis *Diagnosis     `json:"diagnosis,omitempty" doc:"What is wrong, when the state is failed."`
}
