package controlplane

import (
	"context"
	"sync"
	"time"
)

// rushFrom is how many announcements that go out together are a rush, and rushPatience how long who gives way to one
// waits at most each time: where a rush has no end, the rest goes on at a walk.
const (
	rushFrom     = 250
	rushPatience = 2 * time.Second
)

// rush is announcements by the hundred, as after a time without a broker. Runners wait for them; what can be done as
// well afterwards gives way. See docs/adr/0052.
type rush struct {
	mu   sync.Mutex
	over chan struct{} // nil while there is none
}

// note says how many go out now.
func (r *rush) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch on := r.over != nil; {
	case n >= rushFrom && !on:
		r.over = make(chan struct{})
	case n < rushFrom && on:
		close(r.over)
		r.over = nil
	}
}

// giveWay waits until there is no rush, or the context or patience ends.
func (r *rush) giveWay(ctx context.Context) {
	r.mu.Lock()
	over := r.over
	r.mu.Unlock()
	if over == nil {
		return
	}
	patience := time.NewTimer(rushPatience)
	defer patience.Stop()
	select {
	case <-over:
	case <-patience.C:
	case <-ctx.Done():
	}
}
