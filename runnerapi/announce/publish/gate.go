package publish

import (
	"context"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// gate lets all callers pass while it is open, and blocks them while it is closed. The broker
// closes it when it is short of memory or disk.
type gate struct {
	mu   sync.Mutex
	pass chan struct{} // closed while the gate is open
	shut bool
}

func newGate() *gate {
	g := &gate{pass: make(chan struct{})}
	close(g.pass)
	return g
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.shut {
		g.pass, g.shut = make(chan struct{}), true
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		close(g.pass)
		g.shut = false
	}
}

func (g *gate) wait(ctx context.Context, s *session) error {
	g.mu.Lock()
	pass := g.pass
	g.mu.Unlock()
	select {
	case <-pass:
		return nil
	case <-ctx.Done():
		return &rabbitmq.Error{Op: "publish", Code: rabbitmq.CodeBlocked, Err: context.Cause(ctx), Fix: "free memory or disk on the broker"}
	case <-s.lost:
		return s.lostError()
	}
}
