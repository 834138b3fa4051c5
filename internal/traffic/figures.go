package traffic

import (
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

// reasons are why the agent itself answers a request that a route takes. Each has a count. The
// order is that of shared figures.
var reasons = [...]string{
	gatewaywire.Ambiguous, gatewaywire.NotReady, gatewaywire.Unreachable, gatewaywire.TimedOut, gatewaywire.Busy,
	gatewaywire.Denied, gatewaywire.Unauthorized, gatewaywire.TooMany, gatewaywire.TooLarge,
	gatewaywire.SignIn, gatewaywire.TokenWanted, gatewaywire.SignInFailed, gatewaywire.NotAdmitted, gatewaywire.ProviderAway, gatewaywire.NoBackend, "other",
}

// bounds are the highest latencies of the counts of a histogram. One more count is for what is
// beyond.
var bounds = [...]time.Duration{
	1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7 * time.Millisecond,
	10 * time.Millisecond, 15 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 50 * time.Millisecond, 70 * time.Millisecond,
	100 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, 700 * time.Millisecond,
	time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 5 * time.Second, 7 * time.Second,
	10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute,
}

// NoLatency is the latency of a request that no backend got.
const NoLatency time.Duration = -1

// Figures are what was counted in some time.
type Figures struct {
	Statuses  [5]int64               // by class: 1xx to 5xx
	Failed    [len(reasons)]int64    // by reason
	Latencies [len(bounds) + 1]int64 // by bounds
	Received  int64                  // bytes of requests' bodies
	Sent      int64                  // bytes of responses' bodies
}

// Requests returns how many requests there were.
func (f *Figures) Requests() (n int64) {
	for _, of := range f.Statuses {
		n += of
	}
	return n
}

// Errors returns how many requests got a status of 500 or more.
func (f *Figures) Errors() int64 { return f.Statuses[4] }

// add adds others.
func (f *Figures) add(o *Figures) {
	for i, n := range o.Statuses {
		f.Statuses[i] += n
	}
	for i, n := range o.Failed {
		f.Failed[i] += n
	}
	for i, n := range o.Latencies {
		f.Latencies[i] += n
	}
	f.Received, f.Sent = f.Received+o.Received, f.Sent+o.Sent
}

// Quantile returns a quantile of the latency, as 0.95. Within a count it is interpolated. It
// reports false if no backend got a request.
func (f *Figures) Quantile(q float64) (time.Duration, bool) {
	var all int64
	for _, n := range f.Latencies {
		all += n
	}
	if all == 0 {
		return 0, false
	}
	rank, below, from := q*float64(all), 0.0, time.Duration(0)
	for i, to := range bounds {
		n := float64(f.Latencies[i])
		if n > 0 && below+n >= rank {
			return from + time.Duration(float64(to-from)*max(rank-below, 0)/n), true
		}
		below, from = below+n, to
	}
	return from, true
}

// counted is the compact form of Figures: that of a minute or an hour of one host.
type counted struct {
	number    int64 // of the minute or the hour, since 1970
	statuses  [5]uint32
	failed    [len(reasons)]uint32
	latencies [len(bounds) + 1]uint32
	received  int64
	sent      int64
}

func (c *counted) request(status int, reason string, latency time.Duration) {
	c.statuses[min(max(status/100, 1), len(c.statuses))-1]++
	if reason != "" {
		at := slices.Index(reasons[:], reason)
		if at < 0 {
			at = len(reasons) - 1
		}
		c.failed[at]++
	}
	if latency > NoLatency {
		at, _ := slices.BinarySearch(bounds[:], latency)
		c.latencies[at]++
	}
}

func (c *counted) figures() (f Figures) {
	for i, n := range c.statuses {
		f.Statuses[i] = int64(n)
	}
	for i, n := range c.failed {
		f.Failed[i] = int64(n)
	}
	for i, n := range c.latencies {
		f.Latencies[i] = int64(n)
	}
	f.Received, f.Sent = c.received, c.sent
	return f
}
