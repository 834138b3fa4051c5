package tunnel

import (
	"context"
	"sync"
	"time"
)

// prospect is a connection that an attempt is about to bring, or not: one that is worth waiting for.
type prospect struct {
	patience time.Duration
	ended    sync.Once
	over     chan struct{}

	mu    sync.Mutex
	until time.Time // of all who wait, from when the first one does
}

func newProspect(patience time.Duration) *prospect {
	return &prospect{patience: patience, over: make(chan struct{})}
}

// end says that it has come to something.
func (p *prospect) end() { p.ended.Do(func() { close(p.over) }) }

func (p *prospect) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

func (p *prospect) await(ctx context.Context) {
	if p.isOver() {
		return
	}
	late := time.NewTimer(p.left())
	defer late.Stop()
	select {
	case <-p.over:
	case <-late.C:
		p.end() // nobody waits for it again
	case <-ctx.Done():
	}
}

func (p *prospect) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		p.until = time.Now().Add(p.patience)
	}
	return time.Until(p.until)
}
