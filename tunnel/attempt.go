package tunnel

import (
	"context"
	"sync"
	"time"
)

// attempt is a connection attempt that is worth waiting for.
type attempt struct {
	patience time.Duration
	ended    sync.Once
	over     chan struct{}

	mu    sync.Mutex
	until time.Time // for all waiters, counted from the first one
}

func newAttempt(patience time.Duration) *attempt {
	return &attempt{patience: patience, over: make(chan struct{})}
}

// end marks the attempt as finished.
func (p *attempt) end() { p.ended.Do(func() { close(p.over) }) }

func (p *attempt) isOver() bool {
	select {
	case <-p.over:
		return true
	default:
		return false
	}
}

func (p *attempt) await(ctx context.Context) {
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

func (p *attempt) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until.IsZero() {
		p.until = time.Now().Add(p.patience)
	}
	return time.Until(p.until)
}
