package retry

import (
	"context"
	"sync"
)

// Turns keep the goroutines of one process apart that work on the same object, by its name.
type Turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn is given back
}

// Take waits until no other caller has the turn, or until the context ends.
func (t *Turns) Take(ctx context.Context, name string) error {
	for {
		t.mu.Lock()
		given, taken := t.taken[name]
		if !taken {
			if t.taken == nil {
				t.taken = map[string]chan struct{}{}
			}
			t.taken[name] = make(chan struct{})
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		select {
		case <-given:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Give gives a turn back, if it was taken.
func (t *Turns) Give(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if given, taken := t.taken[name]; taken {
		close(given)
		delete(t.taken, name)
	}
}
