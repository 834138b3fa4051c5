package tunnel

import (
	"context"
	"sync"
	"time"
)

// prospect is a connection attempt that is worth waiting for.
type prospect struct {
	patience time.Duration
	ended    sync.Once
	over     chan struct{}

	mu    sync.Mutex
	until time.Time // for all waiters, counted from the first one
}

func newProspect(patience time.Duration) *prospect {
	return &prospect{patience: patience, over: make(chan struct{})}
}

// end marks the attempt as finished.
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
		p.end() // no later caller waits for it
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
