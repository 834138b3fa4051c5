package limit

import (
	"context"
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
	left  chan struct{} // closed when a place is returned; nil if no caller waits
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

// Enter takes a place for a name, if there is one for it. Leave returns it; leave may be called
// again.
func (s *Shares) Enter(name string) (leave func(), ok bool) { return s.EnterMost(name, 0) }

// EnterMost is like Enter for a name that may have fewer places than the others; 0 is as many.
func (s *Shares) EnterMost(name string, most int) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	each := s.each
	if most > 0 {
		each = min(each, most)
	}
	if s.taken >= s.all || s.by[name] >= each || s.fair && s.by[name]/2 >= s.all-s.taken {
		return nil, false
	}
	s.taken++
	s.by[name]++
	return sync.OnceFunc(func() { s.leave(name) }), true
}

// Wait is like Enter, and waits for a place until ctx ends.
func (s *Shares) Wait(ctx context.Context, name string) (leave func(), ok bool) {
	for {
		left := s.nextLeft()
		if leave, ok := s.Enter(name); ok {
			return leave, true
		}
		select {
		case <-left:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// nextLeft returns a channel that is closed when a place is returned.
func (s *Shares) nextLeft() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == nil {
		s.left = make(chan struct{})
	}
	return s.left
}

func (s *Shares) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left != nil {
		close(s.left)
		s.left = nil
	}
	s.taken--
	if s.by[name]--; s.by[name] == 0 {
		delete(s.by, name)
	}
}

// Taken returns how many places are taken.
func (s *Shares) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}
