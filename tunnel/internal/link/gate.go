package link

import "sync"

// Gate counts what is in progress and can be shut: after Shut nothing enters any more and
// everything inside has left. A sync.WaitGroup alone does not allow Add during a Wait.
type Gate struct {
	mu   sync.Mutex
	shut bool
	wg   sync.WaitGroup
}

// Enter reports whether the gate is open, and counts the caller if so.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return false
	}
	g.wg.Add(1)
	return true
}

// Leave ends what Enter began.
func (g *Gate) Leave() { g.wg.Done() }

// Go runs f in a goroutine inside the gate, or reports that the gate is shut.
func (g *Gate) Go(f func()) bool {
	if !g.Enter() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// Shut closes the gate and waits until it is empty.
func (g *Gate) Shut() {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	g.wg.Wait()
}
