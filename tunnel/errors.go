package tunnel

import (
	"errors"
	"fmt"
	"time"
)

// Error is a failure of the tunnel for display: what was attempted, where, why it failed, and the
// fix.
type Error struct {
	// Op is what was being done, such as "connect" or "log in".
	Op string
	// Where is the address it was done with.
	Where string
	// Action is what to do about it.
	Action string
	// Final reports that a retry is pointless without a change by the operator.
	Final bool
	// Spread is the time within which the server asks to try again, each at a moment of its
	// own; zero when it does not ask.
	Spread time.Duration
	Err    error

	refused bool // by a control plane, so that the control plane can be reached
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

// spreadOf returns the Spread that is asked for in err or in what it wraps, such as the other
// transport's answer.
func spreadOf(err error) time.Duration {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Spread > 0 {
			return min(e.Spread, maxSpread)
		}
	}
	return 0
}

// maxSpread bounds what a server can ask for.
const maxSpread = 10 * time.Minute
