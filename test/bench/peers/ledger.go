package main

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// curveEvery is how far points of the curve are apart.
const curveEvery = 50 * time.Millisecond

// ledger keeps account of announcements: each agent's are numbered without gaps, so that
// what is missing and what came too early is seen.
type ledger struct {
	latest   map[string]uint64 // by agent
	seen     map[string]bool   // by agent and the event's ID
	apps     int               // different events of Apps
	again    int
	disorder int

	// segments are the times between the broker's deaths in which something came.
	segments []segment
	dead     bool // the broker was killed, and its readers have not reconnected
	since    time.Time
	curve    []point
}

// segment is what came in a time.
type segment struct {
	first, last time.Time
	count       int
}

func newLedger() ledger { return ledger{latest: map[string]uint64{}, seen: map[string]bool{}} }

// killed notes that the broker is. What is heard from now on was sent by it before, until another
// one is listened to.
func (l *ledger) killed() { l.dead = true }

// listening notes that a broker is listened to from now on, and starts another segment if the one
// before was killed: a connection that was lost for another reason takes time like everything else.
func (l *ledger) listening() {
	if l.dead {
		l.dead = false
		l.segments = append(l.segments, segment{})
	}
}

// drawSince sets the beginning of the curve.
func (l *ledger) drawSince(start time.Time) { l.since = start }

// enter takes what came. What came before is known by its ID; what is older than the
// latest and new came too late.
func (l *ledger) enter(e announce.Event, now time.Time) {
	id := e.AgentID + "/" + e.ID
	if l.seen[id] {
		l.again++
		return
	}
	l.seen[id] = true
	if latest := l.latest[e.AgentID]; e.Sequence < latest {
		l.disorder++
	} else {
		l.latest[e.AgentID] = e.Sequence
	}
	if e.Type.IsApp() {
		l.apps++
	}
	if len(l.segments) == 0 {
		return
	}
	s := &l.segments[len(l.segments)-1]
	if s.count++; s.count == 1 {
		s.first = now
	}
	s.last = now
	l.draw(now)
}

func (l *ledger) draw(now time.Time) {
	at := now.Sub(l.since).Seconds()
	if n := len(l.curve); n > 0 && at-l.curve[n-1].Seconds < curveEvery.Seconds() {
		return
	}
	l.curve = append(l.curve, point{at, l.apps})
}

// rate returns how many came a second while any came.
func (l *ledger) rate() float64 {
	var count int
	var took time.Duration
	for _, s := range l.segments {
		count += s.count
		took += s.last.Sub(s.first)
	}
	if took <= 0 {
		return 0
	}
	return float64(count) / took.Seconds()
}
