// Package ledger records the commands of Runners and their answers. It compares them with what a
// cluster holds, with an audit log and with announcements. It does not depend on the sources of any
// of that, so that its tests can pass it ledgers that do not balance.
package ledger

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Kind is what a command does. It is the call's operationId, as in the audit log.
type Kind string

// The kinds of commands.
const (
	Deploy       Kind = "put-app"
	Scale        Kind = "scale-app"
	Restart      Kind = "restart-app"
	Delete       Kind = "delete-app"
	PutSecret    Kind = "put-secret"
	DeleteSecret Kind = "delete-secret"
	PutConfig    Kind = "put-config-map"
	DeleteConfig Kind = "delete-config-map"
)

// Object returns which object of a target a command is about.
func (k Kind) Object() string {
	switch k {
	case PutSecret, DeleteSecret:
		return "Secret"
	case PutConfig, DeleteConfig:
		return "ConfigMap"
	}
	return "App"
}

// Outcome is how a command ended for the Runner.
type Outcome string

// The outcomes of a command.
const (
	Acknowledged Outcome = "acknowledged" // answered, and so carried out
	Refused      Outcome = "refused"      // answered, and so not carried out
	Unanswered   Outcome = "unanswered"   // given up: carried out or not, then or later
)

// Command is one command, with all the times that it was sent under its key.
type Command struct {
	Number   int       `json:"number"`
	Key      string    `json:"key"` // Idempotency-Key
	Kind     Kind      `json:"kind"`
	Name     string    `json:"name"` // of the object, which one worker alone writes
	Value    string    `json:"value,omitempty"`
	Replicas int32     `json:"replicas,omitempty"`
	Sent     time.Time `json:"sent"`

	Outcome  Outcome   `json:"outcome"`
	Ended    time.Time `json:"ended"`
	Tries    int       `json:"tries"`
	NotFound bool      `json:"notFound,omitempty"` // how it was refused
	Error    string    `json:"error,omitempty"`    // the last one
	Answer   Answer    `json:"answer,omitzero"`
}

// Answer is what an acknowledgement contains about an App.
type Answer struct {
	Generation  int64  `json:"generation"`
	RestartedAt string `json:"restartedAt,omitempty"`
}

// Target is the object of a command.
type Target struct{ Object, Name string }

// Target returns the object of the command.
func (c *Command) Target() Target { return Target{c.Kind.Object(), c.Name} }

// Ledger records ended commands, in the order of each target.
type Ledger struct {
	mu       sync.Mutex
	commands []Command
	out      *json.Encoder
	failed   error
}

// New returns an empty ledger that writes itself to out as well, a line a command.
func New(out io.Writer) *Ledger { return &Ledger{out: json.NewEncoder(out)} }

// Add records an ended command.
func (l *Ledger) Add(c Command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commands = append(l.commands, c)
	if err := l.out.Encode(c); err != nil && l.failed == nil {
		l.failed = err
	}
}

// Commands returns all so far, and why they could not be written down.
func (l *Ledger) Commands() ([]Command, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Command(nil), l.commands...), l.failed
}

// Count returns how many commands ended each way.
func Count(commands []Command) map[Outcome]int {
	n := map[Outcome]int{}
	for i := range commands {
		n[commands[i].Outcome]++
	}
	return n
}
