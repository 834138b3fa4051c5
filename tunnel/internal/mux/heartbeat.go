package mux

import (
	"sync"
	"time"
)

const (
	// firstPing is soon: until the round trip is known no window grows.
	firstPing = 500 * time.Millisecond
	// epoch is how many round trips are considered, and as many again: five to ten minutes. The
	// shortest of them is what the line needs. Each may have waited behind other data, and all of
	// them during bulk transfers. If that counted as the line's need, windows would grow with the
	// queue, and the queue with them.
	epoch = 60
)

// heartbeat pings the other end, so that a dead one is detected, and measures the round trip. It
// has a timer and no goroutine.
type heartbeat struct {
	mu      sync.Mutex
	session *Session
	timer   *time.Timer
	next    uint32
	asked   map[uint32]ping
	waiting bool // for an answer
	id      uint32
	stopped bool
	seen    int
	least   [2]time.Duration // the round trip, of this epoch and of the previous one
}

type ping struct {
	sent     time.Time
	answered chan struct{} // closed then; nil if no goroutine waits
}

func (l *heartbeat) start(s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.session, l.asked = s, map[uint32]ping{}
	l.timer = time.AfterFunc(min(firstPing, s.cfg.KeepAlive), l.tick)
}

func (l *heartbeat) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}

// tick sends the next ping, or ends the session if the last one was not answered.
func (l *heartbeat) tick() {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return
	}
	if l.waiting {
		l.mu.Unlock()
		l.session.fail(ErrKeepAlive)
		return
	}
	l.waiting = true
	l.timer.Reset(l.session.cfg.WriteTimeout)
	l.id = l.ask(nil)
	l.mu.Unlock()
}

// ask sends a ping. It does not wait for room: the ping has to measure what blocks it.
func (l *heartbeat) ask(answered chan struct{}) uint32 {
	id := l.next
	l.next++
	l.asked[id] = ping{time.Now(), answered}
	l.session.out.put(header{kind: framePing, flags: flagSYN, length: id}, true)
	return id
}

func (l *heartbeat) answered(id uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.asked[id]
	if !ok {
		return
	}
	delete(l.asked, id)
	if p.answered != nil {
		close(p.answered)
	}
	l.took(time.Since(p.sent))
	if l.waiting && id == l.id && !l.stopped {
		l.waiting = false
		l.timer.Reset(l.session.cfg.KeepAlive)
	}
}

// took records a round trip.
func (l *heartbeat) took(trip time.Duration) {
	switch {
	case l.seen == 0:
		l.least = [2]time.Duration{trip, trip}
	case l.seen%epoch == 0:
		l.least = [2]time.Duration{trip, l.least[0]}
	}
	l.least[0] = min(l.least[0], trip)
	l.seen++
}

// roundTrip returns the shortest of the newest round trips, or zero while none is known.
func (l *heartbeat) roundTrip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return min(l.least[0], l.least[1])
}

// handlePing answers a ping, or processes an answer. If pings arrive faster than answers can be
// sent, some stay unanswered.
func (s *Session) handlePing(h header) error {
	if h.flags&flagSYN != 0 {
		s.out.put(header{kind: framePing, flags: flagACK, length: h.length}, true)
	} else {
		s.life.answered(h.length)
	}
	return nil
}

// Ping waits for a sign of life from the other end, and returns how long it took.
func (s *Session) Ping() (time.Duration, error) {
	sent, answered := time.Now(), make(chan struct{})
	s.life.mu.Lock()
	id := s.life.ask(answered)
	s.life.mu.Unlock()
	late := time.NewTimer(s.cfg.WriteTimeout)
	defer late.Stop()
	select {
	case <-answered:
		return time.Since(sent), nil
	case <-s.done:
		return 0, s.ended()
	case <-late.C:
		s.life.mu.Lock()
		defer s.life.mu.Unlock()
		delete(s.life.asked, id)
		return 0, ErrKeepAlive
	}
}
