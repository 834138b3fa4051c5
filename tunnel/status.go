package tunnel

import (
	"sync"
	"time"
)

// Phase is the phase of a tunnel's life.
type Phase string

// The phases. A tunnel moves between Connecting, Connected and Waiting. It stops when its context
// or its drain ends (Stopped), or when the server refuses the agent for good (Refused).
const (
	Stopped    Phase = "stopped"
	Connecting Phase = "connecting"
	Connected  Phase = "connected"
	Waiting    Phase = "waiting"
	Refused    Phase = "refused"
)

// Status is a snapshot of the tunnel, fit for display.
type Status struct {
	Phase Phase
	// Since is when Phase was entered.
	Since time.Time
	// Transport is how the tunnel is connected, or was last; empty before the first connection.
	Transport Transport
	// LastError describes the last failure, where it happened, and the fix; empty while connected.
	LastError string
	// Reconnects counts connections after the first.
	Reconnects int
}

// tracker holds the status and wakes the goroutines that wait for its next change.
type tracker struct {
	mu     sync.Mutex
	status Status
	everUp bool
	next   chan struct{}
	notify func() // called after each change; may be nil
	// attempt is the first attempt, or the first one since the connection was lost.
	attempt *attempt
}

func newTracker() *tracker {
	return &tracker{status: Status{Phase: Stopped, Since: time.Now()}, next: make(chan struct{}), attempt: newAttempt(firstPatience)}
}

func (t *tracker) get() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

func (t *tracker) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next
}

// set enters a phase. A nil error keeps the last one, except that a connection clears it.
func (t *tracker) set(phase Phase, err error) {
	if lost := t.enter(phase, err); !lost && phase != Connecting {
		t.awaited().end()
	}
	if t.notify != nil {
		t.notify()
	}
}

// enter reports whether the connection was lost and will be made again.
func (t *tracker) enter(phase Phase, err error) (lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if lost = t.status.Phase == Connected && (phase == Waiting || phase == Connecting); lost {
		t.attempt = newAttempt(nextPatience)
	}
	t.status.Phase, t.status.Since = phase, time.Now()
	if err != nil {
		t.status.LastError = err.Error()
	}
	if phase == Connected {
		t.status.LastError = ""
		if t.everUp {
			t.status.Reconnects++
		}
		t.everUp = true
	}
	close(t.next)
	t.next = make(chan struct{})
	return lost
}

// awaited returns the attempt for which callers wait.
func (t *tracker) awaited() *attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempt
}

// connected enters Connected.
func (t *tracker) connected(by Transport) {
	t.mu.Lock()
	t.status.Transport = by
	t.mu.Unlock()
	t.set(Connected, nil)
}
