package console

import "sync"

// broadcast notifies all open pages of changes.
type broadcast struct {
	mu    sync.Mutex
	ended bool
	to    map[chan struct{}]bool
}

// listen returns a channel that has a value after changes. It is closed at the end.
func (b *broadcast) listen() (changed <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	if b.ended {
		close(c)
		return c, func() {}
	}
	if b.to == nil {
		b.to = map[chan struct{}]bool{}
	}
	b.to[c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.to, c)
	}
}

func (b *broadcast) notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.to {
		select {
		case c <- struct{}{}:
		default: // it has not read the last one
		}
	}
}

func (b *broadcast) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	for c := range b.to {
		close(c)
		delete(b.to, c)
	}
}
