package limit

import "sync"

// Workers do pieces of work at the same time: of one owner at most a share, and each piece once at
// a time. So an owner whose work is slow does not delay that of others.
type Workers struct {
	shares *Shares
	done   func()
	group  sync.WaitGroup

	mu   sync.Mutex
	busy map[string]bool
}

// NewWorkers returns Workers for as many pieces as all, of which one owner gets at most each. done,
// if set, is called whenever a piece of work is done and there is a place for another.
func NewWorkers(all, each int, done func()) *Workers {
	return &Workers{shares: NewShares(all, each), done: done, busy: map[string]bool{}}
}

// Try starts a piece of work, if its owner has a place and it is not being done already.
func (w *Workers) Try(owner, name string, work func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[name] {
		return false
	}
	leave, ok := w.shares.Enter(owner)
	if !ok {
		return false
	}
	w.busy[name] = true
	w.group.Go(func() {
		work()
		leave()
		w.mu.Lock()
		delete(w.busy, name)
		w.mu.Unlock()
		if w.done != nil {
			w.done()
		}
	})
	return true
}

// Wait waits for all work that was started.
func (w *Workers) Wait() { w.group.Wait() }
