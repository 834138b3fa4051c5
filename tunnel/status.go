package tunnel

import (
	"sync"
	"time"
)

// Phase is where the tunnel is in its life.
type Phase string

// The phases. A tunnel moves between Connecting, Connected and Waiting until its context
// or what it drained ends (Stopped), or the server refuses the agent for good (Refused).
const (
	Stopped    Phase = "stopped"
	Connecting Phase = "connecting"
	Connected  Phase = "connected"
	Waiting    Phase = "waiting"
	Refused    Phase = "refused"
)

// Status is a snapshot of the tunnel, fit to be shown to a person.
type Status struct {
	Phase Phase
	// Since is when Phase was entered.
	Since time.Time
	// Way is how the tunnel is connected, or was last; empty before the first time.
	Way Way
	// LastError says what failed last, where, and what to do; empty while connected.
	LastError string
	// Reconnects counts connections after the first.
	Reconnects int
}

// tracker holds the status and wakes whoever waits for its next change.
type tracker struct {
	mu     sync.Mutex
	status Status
	everUp bool
	next   chan struct{}
	told   func() // after each change; nil for nobody
	first  *firstTry
}

func newTracker() *tracker {
	return &tracker{status: Status{Phase: Stopped, Since: time.Now()}, next: make(chan struct{}), first: newFirstTry()}
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

// set enters a phase. A nil error keeps the last one, except that being connected ends it.
func (t *tracker) set(phase Phase, err error) {
	t.enter(phase, err)
	if phase != Connecting {
		t.first.end()
	}
	if t.told != nil {
		t.told()
	}
}

func (t *tracker) enter(phase Phase, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
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
}

// connected enters Connected.
func (t *tracker) connected(w Way) {
	t.mu.Lock()
	t.status.Way = w
	t.mu.Unlock()
	t.set(Connected, nil)
}
