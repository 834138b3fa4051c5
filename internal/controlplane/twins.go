package controlplane

import (
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const (
	// twinReturns is how often one of two processes has to come back after the other
	// before they are called twins. A restart brings nobody back; a call that was under
	// way while its process died does once, and its successor after it once more.
	twinReturns = 3
	// twinMemory is how long it is known who was there before.
	twinMemory = 10 * time.Minute
	// twinsKept bounds what is remembered of one instance, and instancesKept of one agent.
	twinsKept, instancesKept = 16, 16
)

// twins notices two live processes that go by the name of one replica of an agent: a
// machine or a cluster that was copied as a whole runs twice, so that identity,
// cluster and name are the same. Replicas have names of their own. It is told of
// heartbeats, and remembers in memory: a twin goes on beating.
type twins struct {
	now func() time.Time

	mu     sync.Mutex
	agents map[string]map[string]*line // by agent and instance
}

// line is who beats as one instance.
type line struct {
	process, ticket string
	last            time.Time
	// gone are processes, and tickets of the present one, that were followed by others.
	// None of them comes back, unless two live at the same time.
	gone     map[string]time.Time
	returned []time.Time
}

func newTwins(now func() time.Time) *twins {
	return &twins{now: now, agents: map[string]map[string]*line{}}
}

// beat notes a heartbeat and answers the ticket for the next, and whether two
// processes live.
func (t *twins) beat(agentID string, b controlapi.Heartbeat) (ticket string, twin bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.line(agentID, b.Instance, now)
	came := l.came(b, now)
	l.process, l.ticket, l.last = b.Process, rand.Text(), now
	return l.ticket, came
}

func (t *twins) line(agentID, instance string, now time.Time) *line {
	lines := t.agents[agentID]
	if lines == nil {
		lines = map[string]*line{}
		t.agents[agentID] = lines
	}
	for name, l := range lines {
		if now.Sub(l.last) > twinMemory || len(lines) > instancesKept && name != instance {
			delete(lines, name)
		}
	}
	l := lines[instance]
	if l == nil {
		l = &line{gone: map[string]time.Time{}, last: now}
		lines[instance] = l
	}
	return l
}

// came says whether a process is one that others have followed, often enough.
//
// A process that a snapshot of the memory has doubled has one name twice. Its copies
// are told apart by the tickets: each knows those that were answered to it. One that
// sends an older ticket has not got the newer, so nobody will send that, but another.
func (l *line) came(b controlapi.Heartbeat, now time.Time) bool {
	for k, at := range l.gone {
		if now.Sub(at) > twinMemory || len(l.gone) > twinsKept {
			delete(l.gone, k)
		}
	}
	for len(l.returned) > 0 && now.Sub(l.returned[0]) > twinMemory {
		l.returned = l.returned[1:]
	}
	var back bool
	switch {
	case l.process == "" || l.process == b.Process && l.ticket == b.Ticket:
		return false
	case l.process == b.Process:
		_, back = l.gone[b.Ticket]
		l.gone[l.ticket] = now
	default:
		_, back = l.gone[b.Process]
		l.gone[l.process] = now
	}
	if back {
		l.returned = append(l.returned, now)
	}
	return back && len(l.returned) >= twinReturns
}

// forget drops what is known of those that have not beaten for long.
func (t *twins) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, lines := range t.agents {
		maps.DeleteFunc(lines, func(_ string, l *line) bool { return now.Sub(l.last) > twinMemory })
		if len(lines) == 0 {
			delete(t.agents, id)
		}
	}
}
