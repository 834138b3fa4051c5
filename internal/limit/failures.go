package limit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Failures counts how often peers failed at something, and reports peers that have failed too often
// to be served for now.
type Failures struct {
	shared []netip.Prefix
	mu     sync.Mutex
	peers  *table
}

// NewFailures allows each peer so many failures at once, and so many a second in the long
// run. Those in the shared networks may fail as they like.
func NewFailures(burst, perSecond int, shared []netip.Prefix) *Failures {
	return &Failures{shared: shared, peers: newTable(defaultQuiet, rate.Limit(perSecond), burst)}
}

// Wait returns for how long a peer must not be served; zero means that it is served.
func (f *Failures) Wait(p netip.Prefix, now time.Time) time.Duration {
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
func (f *Failures) Failed(p netip.Prefix, now time.Time) {
	if within(p, f.shared) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.peers.get(p)
	e.pace.AllowN(now, 1)
	f.peers.settle(e, now)
}
