package limit

import (
	"math"
	"slices"
	"sync"
)

// Lanes bound how many pieces of work of one owner are done at a time. Further pieces wait for
// their turn, so that the workers are free for those of other owners.
type Lanes[T comparable] struct {
	each PerOwner

	mu      sync.Mutex
	places  *Shares
	busy    map[T]Owner // pieces that have a place
	waiting []waitingTurn[T]
}

// Turn is a piece of work that may begin.
type Turn[T comparable] struct {
	Piece    T
	Priority int
}

type waitingTurn[T comparable] struct {
	Turn[T]
	owner Owner
}

// NewLanes returns Lanes for so many pieces of an owner at a time.
func NewLanes[T comparable](each PerOwner) *Lanes[T] {
	return &Lanes[T]{each: each, places: NewShares(math.MaxInt, 0), busy: map[T]Owner{}}
}

// Begin reports whether a piece of work may begin now. If not, it waits until End returns it. A
// piece that waits already does not wait twice.
func (l *Lanes[T]) Begin(o Owner, piece T, priority int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, turn := l.busy[piece]; turn { // End has returned it
		return true
	}
	at := slices.IndexFunc(l.waiting, func(w waitingTurn[T]) bool { return w.Piece == piece })
	switch {
	case l.places.enter(l.each.claims(o)):
		if at >= 0 {
			l.waiting = slices.Delete(l.waiting, at, at+1)
		}
		l.busy[piece] = o
		return true
	case at >= 0:
		w := &l.waiting[at]
		w.owner, w.Priority = o, max(w.Priority, priority)
	default:
		l.waiting = append(l.waiting, waitingTurn[T]{Turn[T]{piece, priority}, o})
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
func (l *Lanes[T]) Drain(q Queue[T], owner func(T) Owner, do func(T)) {
	for {
		piece, over := q.Get()
		if over {
			return
		}
		if !l.Begin(owner(piece), piece, 0) {
			q.Done(piece)
			continue
		}
		do(piece)
		turns := l.End(piece)
		q.Done(piece)
		for _, next := range turns {
			q.Add(next.Piece)
		}
	}
}

// End ends a piece of work that began, before the queue may return that piece again. It returns the
// pieces that have got its places, one of the namespace and one of the Runner: of those with the
// highest priority, the ones that have waited longest. They have to Begin.
func (l *Lanes[T]) End(piece T) []Turn[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	freed := l.each.claims(l.busy[piece])
	l.places.release(freed)
	delete(l.busy, piece)
	var turns []Turn[T]
	for range freed {
		at := l.first()
		if at < 0 {
			break
		}
		w := l.waiting[at]
		l.places.enter(l.each.claims(w.owner))
		l.busy[w.Piece] = w.owner
		l.waiting = slices.Delete(l.waiting, at, at+1)
		turns = append(turns, w.Turn)
	}
	return turns
}

// first returns the place in line of the piece whose turn it is; -1 if there are places for none.
func (l *Lanes[T]) first() int {
	first := -1
	for i, w := range l.waiting {
		if (first < 0 || w.Priority > l.waiting[first].Priority) && l.places.fits(l.each.claims(w.owner)) {
			first = i
		}
	}
	return first
}
