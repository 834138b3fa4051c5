package limit

import (
	"context"
	"slices"
	"sync"
)

// Shares divides a number of places among clients by name: an agent's ID, a Runner's name, an
// address.
type Shares struct {
	all, each int
	fair      bool

	mu    sync.Mutex
	taken int
	by    map[string]int
	waits []waiter // in the order in which they came; none of them fits
}

// NewShares returns all places, of which one name gets at most each.
func NewShares(all, each int) *Shares {
	return &Shares{all: all, each: each, by: make(map[string]int)}
}

// NewFairShares is like NewShares, but one name gets at most twice as many places as are free. So a
// name that has none finds one, however many the others want.
func NewFairShares(all, each int) *Shares {
	s := NewShares(all, each)
	s.fair = true
	return s
}

// claim is a name that a place counts for, and how many places the name gets.
type claim struct {
	name string
	most int
}

// waiter is a caller of Wait.
type waiter struct {
	claims   []claim
	admitted chan struct{} // closed when it has its place
}

// Enter takes a place for a name, if there is one for it. Leave returns it; leave may be called
// again.
func (s *Shares) Enter(name string) (leave func(), ok bool) { return s.EnterMost(name, 0) }

// EnterMost is like Enter for a name that may have fewer places than the others; 0 is as many.
func (s *Shares) EnterMost(name string, most int) (leave func(), ok bool) {
	each := s.each
	if most > 0 {
		each = min(each, most)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	claims := []claim{{name, each}}
	if !s.enter(claims) {
		return nil, false
	}
	return s.leave(claims), true
}

// Wait is like Enter, and waits for a place until ctx ends. Those who wait for the same place get
// it in the order in which they came.
func (s *Shares) Wait(ctx context.Context, name string) (leave func(), ok bool) {
	return s.wait(ctx, []claim{{name, s.each}})
}

func (s *Shares) wait(ctx context.Context, claims []claim) (leave func(), ok bool) {
	s.mu.Lock()
	if s.enter(claims) {
		s.mu.Unlock()
		return s.leave(claims), true
	}
	w := waiter{claims, make(chan struct{})}
	s.waits = append(s.waits, w)
	s.mu.Unlock()
	select {
	case <-w.admitted:
	case <-ctx.Done():
		if s.withdraw(w) {
			return nil, false
		}
	}
	return s.leave(claims), true
}

// withdraw is false if the waiter was admitted meanwhile.
func (s *Shares) withdraw(w waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.waits)
	s.waits = slices.DeleteFunc(s.waits, func(other waiter) bool { return other.admitted == w.admitted })
	return len(s.waits) < before
}

// fits needs s.mu.
func (s *Shares) fits(claims []claim) bool {
	return s.taken < s.all && !slices.ContainsFunc(claims, func(c claim) bool {
		return s.by[c.name] >= c.most || s.fair && s.by[c.name]/2 >= s.all-s.taken
	})
}

// enter needs s.mu.
func (s *Shares) enter(claims []claim) bool {
	if !s.fits(claims) {
		return false
	}
	s.taken++
	for _, c := range claims {
		s.by[c.name]++
	}
	return true
}

// leave returns what returns a place, once.
func (s *Shares) leave(claims []claim) func() {
	return sync.OnceFunc(func() { s.release(claims) })
}

// release returns a place that counts for these names, if they have one.
func (s *Shares) release(claims []claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range claims {
		if s.by[c.name] == 0 {
			return
		}
	}
	s.taken--
	for _, c := range claims {
		if s.by[c.name]--; s.by[c.name] == 0 {
			delete(s.by, c.name)
		}
	}
	s.waits = slices.DeleteFunc(s.waits, func(w waiter) bool {
		if !s.enter(w.claims) {
			return false
		}
		close(w.admitted)
		return true
	})
}

// Taken returns how many places are taken.
func (s *Shares) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}
