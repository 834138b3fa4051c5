package agents

import (
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

const (
	// duplicateReturns is how often one of two processes must come back after the other before they
	// count as duplicate instances. A restart brings no process back. A call that was in progress
	// while its process died does so once, and its successor once more after it.
	duplicateReturns = 3
	// duplicateMemory is how long earlier processes are remembered.
	duplicateMemory = 10 * time.Minute
	// duplicatesKept bounds what is remembered of one instance, and instancesKept of one agent.
	duplicatesKept, instancesKept = 16, 16
)

// duplicates detects duplicate instances: two live processes with the name of one replica of an
// agent. A machine or cluster that was copied as a whole runs twice, with the same identity,
// cluster and name. Replicas have their own names. It is called for each heartbeat and keeps its
// state in memory, since a duplicate instance keeps sending heartbeats.
type duplicates struct {
	now func() time.Time

	mu     sync.Mutex
	agents map[string]map[string]*line // by agent and instance
}

// line is the history of one instance's heartbeats.
type line struct {
	process, ticket string
	last            time.Time
	// gone holds processes, and tickets of the present process, that were replaced by others. None
	// of them comes back, unless two processes live at the same time.
	gone     map[string]time.Time
	returned []time.Time
}

func newDuplicates(now func() time.Time) *duplicates {
	return &duplicates{now: now, agents: map[string]map[string]*line{}}
}

// beat records a heartbeat. It returns the ticket for the next one, and whether two processes live.
func (t *duplicates) beat(agentID string, b controlapi.Heartbeat) (ticket string, duplicate bool) {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.line(agentID, b.Instance, now)
	came := l.came(b, now)
	l.process, l.ticket, l.last = b.Process, rand.Text(), now
	return l.ticket, came
}

func (t *duplicates) line(agentID, instance string, now time.Time) *line {
	lines := t.agents[agentID]
	if lines == nil {
		lines = map[string]*line{}
		t.agents[agentID] = lines
	}
	for name, l := range lines {
		if now.Sub(l.last) > duplicateMemory || len(lines) > instancesKept && name != instance {
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

// came reports whether a process has come back after its successors, often enough.
//
// A snapshot of the memory gives two processes the same name. Tickets distinguish the two: each
// process knows only those that it received. A process that sends an older ticket has not received
// the newer one, so only another process can send that.
func (l *line) came(b controlapi.Heartbeat, now time.Time) bool {
	for k, at := range l.gone {
		if now.Sub(at) > duplicateMemory || len(l.gone) > duplicatesKept {
			delete(l.gone, k)
		}
	}
	for len(l.returned) > 0 && now.Sub(l.returned[0]) > duplicateMemory {
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
	return back && len(l.returned) >= duplicateReturns
}

// forget drops instances without a recent heartbeat.
func (t *duplicates) forget(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, lines := range t.agents {
		maps.DeleteFunc(lines, func(_ string, l *line) bool { return now.Sub(l.last) > duplicateMemory })
		if len(lines) == 0 {
			delete(t.agents, id)
		}
	}
}
