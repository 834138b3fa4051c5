package tunnel

import (
	"errors"
	"fmt"
)

// Error is a failure of the tunnel told to a person: what was being done, where, why it
// failed and what to do next.
type Error struct {
	// Op is what was being done, such as "connect" or "log in".
	Op string
	// Where is the address it was done with.
	Where string
	// Action is what to do about it.
	Action string
	// Final says that trying again is pointless until someone acts.
	Final bool
	Err   error
}

// Error joins the four parts.
func (e *Error) Error() string {
	return fmt.Sprintf("tunnel: %s %s: %v; %s", e.Op, e.Where, e.Err, e.Action)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IsFinal reports whether err is a refusal that retrying does not change.
func IsFinal(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Final
}
