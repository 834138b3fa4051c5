package traffic

import (
	"slices"
	"sync"
	"time"
)

// Span is a time over which there are figures.
type Span struct {
	Step  time.Duration // of one value
	Steps int           // how many values, of which the last one is not over yet
}

// The spans. Each has one step more than its name says, because the last step is not over.
var (
	Hour = Span{time.Minute, 61}
	Day  = Span{time.Hour, 25}
)

// number returns which step a time is in, since 1970.
func (s Span) number(at time.Time) int64 { return at.Unix() / int64(s.Step/time.Second) }

// time returns when a step began.
func (s Span) time(number int64) time.Time {
	return time.Unix(number*int64(s.Step/time.Second), 0).UTC()
}

// first returns the first step of the span that ends now.
func (s Span) first(now time.Time) int64 { return s.number(now) - int64(s.Steps) + 1 }

// ring has the counts of the last steps of a span. A step that had no request costs nothing.
type ring struct {
	span  Span
	steps []*counted
}

func newRing(s Span) ring { return ring{s, make([]*counted, s.Steps)} }

func (r *ring) at(now time.Time) *counted {
	n := r.span.number(now)
	of := &r.steps[n%int64(len(r.steps))]
	if *of == nil {
		*of = &counted{number: n}
	}
	if (*of).number != n {
		**of = counted{number: n}
	}
	return *of
}

// values returns what was counted in each step that had requests and is not too long ago.
func (r *ring) values(now time.Time) []Value {
	first, values := r.span.first(now), []Value(nil)
	for _, c := range r.steps {
		if c != nil && c.number >= first {
			values = append(values, Value{c.number, c.figures()})
		}
	}
	slices.SortFunc(values, func(a, b Value) int { return int(a.Number - b.Number) })
	return values
}

// Host counts the requests of one host of an App. A nil Host counts nothing.
type Host struct {
	mu        sync.Mutex // of this host alone: requests of other hosts do not wait for it
	minutes   ring
	hours     ring
	touched   time.Time // when it was last requested, or made
	requested bool
}

func newHost() *Host { return &Host{minutes: newRing(Hour), hours: newRing(Day)} }

// Request counts a request. Reason is the word with which the agent itself has answered, if it has.
// Latency is the time until the backend began its answer, or NoLatency.
func (h *Host) Request(now time.Time, status int, reason string, latency time.Duration, received, sent int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range [2]*counted{h.minutes.at(now), h.hours.at(now)} {
		c.request(status, reason, latency)
		c.bytes(received, sent)
	}
	h.touched, h.requested = now, true
}

// Bytes counts bytes of bodies of a request that is counted already.
func (h *Host) Bytes(now time.Time, received, sent int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range [2]*counted{h.minutes.at(now), h.hours.at(now)} {
		c.bytes(received, sent)
	}
	h.touched, h.requested = now, true
}

func (c *counted) bytes(received, sent int64) {
	c.received, c.sent = c.received+max(received, 0), c.sent+max(sent, 0)
}

func (h *Host) last() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.touched
}

func (h *Host) values(now time.Time) (minutes, hours []Value) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.minutes.values(now), h.hours.values(now)
}

// used reports whether a request was counted.
func (h *Host) used() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requested
}
