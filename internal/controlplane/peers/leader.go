package peers

import (
	"context"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Leader has what only one may do done by one of the control planes that serve a
// database: by this one while it leads. Where there is only one, it leads always.
type Leader struct {
	mu      sync.Mutex
	term    context.Context // nil while another leads
	changed chan struct{}   // closed at the next change of term
	working sync.WaitGroup
}

// NewLeader returns a leader that does not lead yet.
func NewLeader() *Leader { return &Leader{changed: make(chan struct{})} }

// Run stands by, and leads when the store allows it.
func (l *Leader) Run(ctx context.Context, s *store.Store) error { return s.Lead(ctx, l.lead) }

// lead is one term. It ends once all work of the term has noticed that it is over.
func (l *Leader) lead(ctx context.Context) {
	l.set(ctx, true)
	<-ctx.Done()
	l.set(ctx, false)
	l.working.Wait()
}

func (l *Leader) set(term context.Context, leads bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term = nil; leads {
		l.term = term
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Leads reports whether this control plane leads at the moment.
func (l *Leader) Leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term != nil
}

// While runs work whenever this control plane leads, until the context ends. The context of work
// also ends with the term. It returns an error of work, unless work was asked to end.
func (l *Leader) While(ctx context.Context, work func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := l.once(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

// once waits for a term, works in it and waits for its end.
func (l *Leader) once(ctx context.Context, work func(context.Context) error) error {
	l.mu.Lock()
	term, changed := l.term, l.changed
	if term != nil {
		l.working.Add(1)
	}
	l.mu.Unlock()
	if term != nil {
		running, end := context.WithCancel(ctx)
		stop := context.AfterFunc(term, end) //nolint:contextcheck // both end it
		err := retry.UnlessDone(running, work(running))
		stop()
		end()
		l.working.Done()
		if err != nil {
			return err
		}
	}
	select {
	case <-changed:
	case <-ctx.Done():
	}
	return nil
}
