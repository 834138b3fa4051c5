package backend

import (
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// How long and how many commands a Journal remembers.
const (
	JournalAge  = 24 * time.Hour
	JournalSize = 2000
)

// Claim is a command before it is carried out.
type Claim struct {
	Caller  runnerapi.Caller
	Key     string        // Idempotency-Key
	Command string        // operationId of the call
	Target  runnerapi.Key // of what; the name of a namespace is in Namespace
	Method  string
	Path    string
	Body    []byte
}

// Record is what the journal keeps of a command. It never contains the request, which may be
// secret: a keyed digest shows whether a request is the same.
type Record struct {
	ID        string           `json:"id"`
	Command   string           `json:"command"`
	Target    runnerapi.Key    `json:"target"`
	Caller    runnerapi.Caller `json:"caller"`
	StartedAt time.Time        `json:"startedAt"`

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
func KeyReused() *runnerapi.Error {
	return problem.New(http.StatusConflict, runnerapi.CodeIdempotencyKeyReused,
		"use a new key for a new command; send the same again only to repeat it",
		"this Idempotency-Key was used for another command within the last %s", JournalAge).
		WithField("header.Idempotency-Key")
}
