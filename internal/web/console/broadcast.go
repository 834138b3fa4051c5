package console

import (
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// broadcast notifies all open pages of changes.
type broadcast struct {
	mu    sync.Mutex
	ended bool
	to    map[wake.Signal]bool
}

// listen returns a channel that has a value after changes. It is closed at the end.
func (b *broadcast) listen() (changed <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := wake.New()
	if b.ended {
		close(c)
		return c, func() {}
	}
	if b.to == nil {
		b.to = map[wake.Signal]bool{}
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
		c.Raise()
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
