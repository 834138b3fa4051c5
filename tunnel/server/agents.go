package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// errCrowded refuses a replica beyond Limits.Instances. The agent receives it.
var errCrowded = errors.New("too many replicas of this agent are connected")

// agents knows the sessions of every agent and reports when an agent connects and disconnects.
type agents struct {
	onUp, onDown func(string)
	max          int // instances of one agent

	mu   sync.Mutex
	byID map[string]*agent
	turn uint64 // of the newest dial
}

// agent holds one agent's sessions: those of its instances side by side, and others that are
// logging in or ending.
type agent struct {
	id        string
	sessions  map[*session]struct{}
	instances map[string]*instance
	changed   chan struct{} // closed at the next change of the dialable sessions

	telling sync.Mutex // held during the callbacks, so that they come in order
	told    bool       // the last reported state
}

// instance is one replica of an agent. At most one of its sessions is current.
type instance struct {
	sessions int // sessions that logged in under its name; it is removed with the last
	current  *session
	// online is true from the moment a session is reachable until the current one ends or drains. A
	// takeover in between changes nothing.
	online bool

	entering sync.Mutex // held by the session that logs in, so that frps sees them in turn
}

func newAgents(onUp, onDown func(string), limit int) *agents {
	nothing := func(string) {}
	if onUp == nil {
		onUp = nothing
	}
	if onDown == nil {
		onDown = nothing
	}
	return &agents{onUp: onUp, onDown: onDown, max: limit, byID: make(map[string]*agent)}
}

func (r *agents) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	if a == nil {
		a = &agent{
			id: s.agentID, sessions: make(map[*session]struct{}), instances: make(map[string]*instance),
			changed: make(chan struct{}),
		}
		r.byID[s.agentID] = a
	}
	a.sessions[s] = struct{}{}
}

// takeOver makes s its instance's current session, ends the previous one, and waits for its turn to
// log in. It returns the function that ends that turn. It returns errCrowded, or errReplaced if s
// was itself taken over while it waited.
func (r *agents) takeOver(s *session) (leave func(), err error) {
	i, previous, err := r.enter(s)
	if err != nil {
		return nil, err
	}
	if previous != nil {
		previous.kill(errReplaced)
	}
	i.entering.Lock()
	if s.isDone() {
		i.entering.Unlock()
		return nil, errReplaced
	}
	return i.entering.Unlock, nil
}

func (r *agents) enter(s *session) (i *instance, previous *session, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	name := s.replica.instance
	i = a.instances[name]
	if i == nil {
		if len(a.instances) >= r.max {
			return nil, nil, fmt.Errorf("%w: %d, which is the most there may be; scale the agent down, or wait until those that are gone are noticed", errCrowded, r.max)
		}
		i = &instance{}
		a.instances[name] = i
	}
	previous, i.current, s.instance = i.current, s, i
	i.sessions++
	return i, previous, nil
}

// reachable records that s can be dialled. tell informs the listeners.
func (r *agents) reachable(s *session) *agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	if a != nil && s.instance.current == s {
		s.takes, s.instance.online = true, true
		a.change()
	}
	return a
}

// drain removes s from the sessions that are dialled.
func (r *agents) drain(s *session) {
	r.mu.Lock()
	a := r.byID[s.agentID]
	if s.takes = false; s.instance.current == s {
		s.instance.online = false
	}
	a.change()
	r.mu.Unlock()
	r.tell(a)
}

// remove forgets a session that is over.
func (r *agents) remove(s *session) {
	r.mu.Lock()
	a := r.byID[s.agentID]
	delete(a.sessions, s)
	if i := s.instance; i != nil {
		if i.current == s {
			i.current, i.online = nil, false
		}
		if i.sessions--; i.sessions == 0 {
			delete(a.instances, s.replica.instance)
		}
	}
	a.change()
	r.mu.Unlock()
	r.tell(a)

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(a.sessions) == 0 && r.byID[a.id] == a {
		delete(r.byID, a.id)
	}
}

// change wakes the dials that wait for a session.
func (a *agent) change() {
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agent) online() bool {
	for _, i := range a.instances {
		if i.online {
			return true
		}
	}
	return false
}

// tell reports the current state to the listeners. Several goroutines may call it. Each reports the
// state at that time, so that the last report is right.
func (r *agents) tell(a *agent) {
	if a == nil {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	r.mu.Lock()
	online := a.online()
	r.mu.Unlock()
	if online == a.told {
		return
	}
	a.told = online
	if online {
		r.onUp(a.id)
	} else {
		r.onDown(a.id)
	}
}

func (r *agents) isOnline(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[id]
	return a != nil && a.online()
}

func (r *agents) sessions(id string) []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*session
	if a := r.byID[id]; a != nil {
		for s := range a.sessions {
			all = append(all, s)
		}
	}
	return all
}

func (r *agents) list() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]string, 0, len(r.byID))
	for id, a := range r.byID {
		if a.online() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *agents) held() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.byID))
}

func (r *agents) count() (online, sessions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.byID {
		sessions += len(a.sessions)
		if a.online() {
			online++
		}
	}
	return online, sessions
}
