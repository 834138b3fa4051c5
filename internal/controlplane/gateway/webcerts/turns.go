package webcerts

import (
	"context"
	"sync"
)

// turns keeps the goroutines of one process apart, by a lock's name. The database keeps processes
// apart only: a holder may take its own lock again.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // closed when the turn is given back
}

// take waits until no other caller has the turn, or until the context ends.
func (t *turns) take(ctx context.Context, name string) error {
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

// give gives a turn back, if it was taken.
func (t *turns) give(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if given, taken := t.taken[name]; taken {
		close(given)
		delete(t.taken, name)
	}
}
