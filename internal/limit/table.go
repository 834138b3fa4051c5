package limit

import (
	"container/list"
	"time"

	"golang.org/x/time/rate"
)

// table remembers peers, such as networks: those with something open, and of the others at most
// max, of which those that have been quiet longest go first. So strangers with many addresses make
// it forget how often others came, and never make it grow. Its users hold a lock.
type table[K comparable] struct {
	max   int
	rate  rate.Limit
	burst int
	peers map[K]*entry[K]
	quiet *list.List // of *entry[K] with nothing open, in the order in which they fell quiet
}

type entry[K comparable] struct {
	peer  K
	open  int
	pace  *rate.Limiter
	quiet *list.Element
}

func newTable[K comparable](maxQuiet int, r rate.Limit, burst int) *table[K] {
	return &table[K]{max: maxQuiet, rate: r, burst: burst, peers: make(map[K]*entry[K]), quiet: list.New()}
}

// get finds a peer or notes a new one. Call settle when done with it.
func (t *table[K]) get(p K) *entry[K] {
	e := t.peers[p]
	if e == nil {
		e = &entry[K]{peer: p, pace: rate.NewLimiter(t.rate, t.burst)}
		t.peers[p] = e
	}
	return e
}

// settle moves an entry to its place, and removes entries that need not be remembered.
func (t *table[K]) settle(e *entry[K], now time.Time) {
	if e.quiet != nil {
		t.quiet.Remove(e.quiet)
		e.quiet = nil
	}
	if e.open == 0 {
		e.quiet = t.quiet.PushBack(e)
	}
	for front := t.quiet.Front(); front != nil; front = t.quiet.Front() {
		oldest := front.Value.(*entry[K])
		if t.quiet.Len() <= t.max && oldest.pace.TokensAt(now) < float64(t.burst) {
			return
		}
		t.quiet.Remove(front)
		delete(t.peers, oldest.peer)
	}
}
