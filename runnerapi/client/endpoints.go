package client

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// dialPatience is how long a dial may hang until the next address is tried beside it.
	dialPatience = time.Second
	// avoidFor is how long an address that failed is tried after all others.
	avoidFor = 30 * time.Second
)

// endpoints are the ways to an agent, by their place in the list, and how they did.
type endpoints struct {
	mu        sync.Mutex
	first     int         // what worked last; at the beginning any
	broke     []time.Time // when each failed; zero if it has worked since
	now       func() time.Time
	patience  time.Duration // dialPatience
	handshake time.Duration // handshakeTimeout
}

func newEndpoints(addresses []string) *endpoints {
	n := len(addresses)
	return &endpoints{
		first: rand.N(n), broke: make([]time.Time, n), now: time.Now, //nolint:gosec // spreading load needs no secrecy
		patience: dialPatience, handshake: handshakeTimeout,
	}
}

// order returns the order in which to try the endpoints: the one that worked last, then the others
// in turn, and finally those that failed recently, which are still tried.
func (e *endpoints) order() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	order := make([]int, len(e.broke))
	for i := range order {
		order[i] = (e.first + i) % len(order)
	}
	lately := e.now().Add(-avoidFor)
	slices.SortStableFunc(order, func(a, b int) int {
		var at [2]int64
		for i, n := range []int{a, b} {
			if e.broke[n].After(lately) {
				at[i] = e.broke[n].UnixNano()
			}
		}
		return cmp.Compare(at[0], at[1])
	})
	return order
}

func (e *endpoints) worked(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.first, e.broke[n] = n, time.Time{}
}

func (e *endpoints) failed(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broke[n] = e.now()
}

// dialErrors are why each address did not do.
type dialErrors []error

func (e dialErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e dialErrors) Unwrap() []error { return e }
