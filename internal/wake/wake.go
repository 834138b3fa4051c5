// Package wake makes a goroutine look at something soon.
package wake

import (
	"context"
	"time"
)

// Signal requests a look: one, however often it is raised until then.
type Signal chan struct{}

// New returns a Signal that is not raised.
func New() Signal { return make(Signal, 1) }

// Raise requests a look. It does not block.
func (s Signal) Raise() {
	select {
	case s <- struct{}{}:
	default: // it is raised already
	}
}

// Wait waits until the signal is raised, and reports whether that was before the context ended.
func (s Signal) Wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s:
		return true
	}
}

// WaitFor waits until the signal is raised or that time has passed, and reports whether that was
// before the context ended.
func (s Signal) WaitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s:
	case <-timer.C:
	}
	return true
}
