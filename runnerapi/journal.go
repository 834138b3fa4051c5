package runnerapi

import (
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// CodeIdempotencyKeyReused refuses another command under a key that is taken.
const CodeIdempotencyKeyReused = Code("idempotency_key_reused") // 409

// How long and how many commands a Journal remembers.
const (
	JournalAge  = 24 * time.Hour
	JournalSize = 2000
)

// Outcome is the outcome of a command.
type Outcome struct {
	State     OperationState `json:"state" enum:"pending,succeeded,failed,superseded"`
	Message   string         `json:"message,omitempty" doc:"Why the state is what it is, where that needs saying."`
	Diagnosis *Diagnosis     `json:"diagnosis,omitempty" doc:"What is wrong, when the state is failed."`
}

// Claim is a command before it is carried out.
type Claim struct {
	Caller  Caller
	Key     string // Idempotency-Key
	Command string // operationId of the call
	Target  Key    // of what; the name of a namespace is in Namespace
	Method  string
	Path    string
	Body    []byte
}

// Record is what the journal keeps of a command. It never contains the request, which may be
// secret: a keyed digest shows whether a request is the same.
type Record struct {
	ID        string    `json:"id"`
	Command   string    `json:"command"`
	Target    Key       `json:"target"`
	Caller    Caller    `json:"caller"`
	StartedAt time.Time `json:"startedAt"`

	Done bool `json:"done"` // all below holds
	// App is set for commands whose answer is an App.
	App *AppMark `json:"app,omitempty"`
	// Status and Answer are what other commands were answered.
	Status int    `json:"status,omitempty"`
	Answer []byte `json:"answer,omitempty"`
}

// AppMark finds the rollout that a command started.
type AppMark struct {
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	Restart    string `json:"restart,omitempty"`
}

// KeyReused returns the refusal of another command under a key that is taken.
func KeyReused() *Error {
	return problem.New(http.StatusConflict, CodeIdempotencyKeyReused,
		"use a new key for a new command; send the same again only to repeat it",
		"this Idempotency-Key was used for another command within the last %s", JournalAge).
		WithField("header.Idempotency-Key")
}
