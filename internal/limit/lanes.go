package limit

import (
	"slices"
	"sync"
)

// Lanes bound how many pieces of work of one owner are done at a time. Further pieces wait for
// their turn, so that the workers are free for those of other owners.
type Lanes[T comparable] struct {
	each int

	mu sync.Mutex
	of map[string]*lane[T]
}

// lane is the work of one owner.
type lane[T comparable] struct {
	busy    int
	waiting []turn[T]
}

type turn[T comparable] struct {
	piece    T
	priority int
}

// NewLanes returns Lanes for each pieces of an owner at a time.
func NewLanes[T comparable](each int) *Lanes[T] {
	return &Lanes[T]{each: each, of: map[string]*lane[T]{}}
}

// Begin reports whether a piece of work may begin now. If not, it waits until End returns it. A
// piece that waits already does not wait twice.
func (l *Lanes[T]) Begin(owner string, piece T, priority int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.of[owner]
	if o == nil {
		o = &lane[T]{}
		l.of[owner] = o
	}
	if o.busy < l.each {
		o.busy++
		return true
	}
	if i := slices.IndexFunc(o.waiting, func(w turn[T]) bool { return w.piece == piece }); i >= 0 {
		o.waiting[i].priority = max(o.waiting[i].priority, priority)
	} else {
		o.waiting = append(o.waiting, turn[T]{piece, priority})
	}
	return false
}

// Queue is where Drain gets work from: a workqueue of client-go.
type Queue[T comparable] interface {
	Add(piece T)
	Get() (piece T, shutdown bool)
	Done(piece T)
}

// Drain does the work of a queue until that is shut down. Each worker calls it.
func (l *Lanes[T]) Drain(q Queue[T], owner func(T) string, do func(T)) {
	for {
		piece, over := q.Get()
		if over {
			return
		}
		name := owner(piece)
		if !l.Begin(name, piece, 0) {
			q.Done(piece)
			continue
		}
		do(piece)
		q.Done(piece)
		if next, _, ok := l.End(name); ok {
			q.Add(next)
		}
	}
}

// End ends a piece of work that began. It returns the owner's next piece, if one waits: of those
// with the highest priority, the one that has waited longest. That one has to Begin again.
func (l *Lanes[T]) End(owner string) (next T, priority int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.of[owner]
	o.busy--
	if len(o.waiting) == 0 {
		if o.busy == 0 {
			delete(l.of, owner)
		}
		return next, 0, false
	}
	first := 0
	for i, w := range o.waiting {
		if w.priority > o.waiting[first].priority {
			first = i
		}
	}
	w := o.waiting[first]
	o.waiting = slices.Delete(o.waiting, first, first+1)
	return w.piece, w.priority, true
}
