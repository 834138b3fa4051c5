package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Failures counts how often peers failed at something, and reports peers that have failed too often
// to be served for now. A peer is an address, or something that the caller has proven: a name that
// anyone can give would let strangers lock its owner out.
type Failures[K comparable] struct {
	exempt func(K) bool
	mu     sync.Mutex
	peers  *table[K]
}

// NewFailures allows each peer so many failures at once, and one more in each interval.
func NewFailures[K comparable](burst int, every time.Duration) *Failures[K] {
	return &Failures[K]{peers: newTable[K](defaultQuiet, rate.Every(every), burst)}
}

// Except lets the peers for which exempt returns true fail as often as they do.
func (f *Failures[K]) Except(exempt func(K) bool) *Failures[K] {
	f.exempt = exempt
	return f
}

// Wait returns for how long a peer must not be served; zero means that it is served.
func (f *Failures[K]) Wait(p K, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.peers.peers[p]
	if e == nil {
		return 0
	}
	tokens := e.pace.TokensAt(now)
	if tokens >= 1 {
		return 0
	}
	return time.Duration((1 - tokens) / float64(f.peers.rate) * float64(time.Second))
}

// Failed counts a failure.
func (f *Failures[K]) Failed(p K, now time.Time) {
	if f.exempt != nil && f.exempt(p) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.peers.get(p)
	e.pace.AllowN(now, 1)
	f.peers.settle(e, now)
}
