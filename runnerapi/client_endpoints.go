package runnerapi

import (
	"cmp"
	"math/rand/v2"
	"net"
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

// order is in which order to try them: what worked last, then the others in turn, and
// last those that failed lately, which is no reason not to try them.
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

// race are dials side by side, of which the first to succeed wins.
type race struct {
	waiting []int
	running int
	results chan raced // has room for all
}

type raced struct {
	n    int
	conn net.Conn
	err  error
}

// start has the next one begin, if there is one.
func (r *race) start(dial func(n int) (net.Conn, error)) {
	if len(r.waiting) == 0 {
		return
	}
	n := r.waiting[0]
	r.waiting, r.running = r.waiting[1:], r.running+1
	go func() {
		conn, err := dial(n)
		r.results <- raced{n, conn, err}
	}()
}

// end waits for those that are under way, which have been told to end, and closes
// what they have brought.
func (r *race) end() {
	for ; r.running > 0; r.running-- {
		if late := <-r.results; late.err == nil {
			_ = late.conn.Close() // nobody has used it
		}
	}
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
