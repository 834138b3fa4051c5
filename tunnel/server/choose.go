package server

import (
	"sync/atomic"
	"time"
)

// doubtFor is how long a session that did not answer a dial is tried last. By then the keep-alive
// has ended it, or it responds again.
const doubtFor = 15 * time.Second

// choice is where a dial may go next.
type choice struct {
	session *session // nil when there is none now
	alone   bool     // there is no other session for failover
	// awaited reports that a session is logging in, which changed will signal.
	awaited bool
	changed <-chan struct{}
}

// choose finds the session to dial: the instances take turns, those that left a dial
// unanswered come last, and what was tried is not tried again.
func (r *agents) choose(id string, tried map[*session]bool) (c choice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[id]
	if a == nil {
		return choice{}
	}
	now, takers := time.Now(), 0
	for _, i := range a.instances {
		s := i.current
		if s == nil || s.isDone() {
			continue
		}
		if !s.takes {
			c.awaited = c.awaited || !s.isReady()
			continue
		}
		takers++
		if _, was := tried[s]; !was && (c.session == nil || s.before(c.session, now)) {
			c.session = s
		}
	}
	c.alone, c.changed = takers == 1, a.changed
	return c
}

// chosen puts s at the end of the line.
func (r *agents) chosen(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	s.turn = r.turn
}

// doubt is that of a session that did not answer a dial in time.
type doubt struct{ until atomic.Int64 } // UnixNano

func (d *doubt) begin() { d.until.Store(time.Now().Add(doubtFor).UnixNano()) }
func (d *doubt) end()   { d.until.Store(0) }

func (d *doubt) holds(now time.Time) bool { return d.until.Load() > now.UnixNano() }

// before reports whether s is the better choice.
func (s *session) before(other *session, now time.Time) bool {
	if doubted := s.doubt.holds(now); doubted != other.doubt.holds(now) {
		return !doubted
	}
	return s.turn < other.turn
}
