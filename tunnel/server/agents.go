package server

import (
	"context"
	"slices"
	"sync"
)

// agents knows the sessions of every agent and tells when an agent comes and goes.
type agents struct {
	onUp, onDown func(string)

	mu   sync.Mutex
	byID map[string]*agent
}

// agent is one agent's sessions: at most one is current, others are logging in or dying.
type agent struct {
	id       string
	sessions map[*session]struct{}
	current  *session
	// online is true from the moment a session is reachable until the current one ends.
	// A takeover in between changes nothing.
	online bool

	entering sync.Mutex // held by the session that logs in, so that frps sees them in turn

	telling sync.Mutex // held while telling, so that news come in turn
	told    bool       // what was told last
}

func newAgents(onUp, onDown func(string)) *agents {
	nothing := func(string) {}
	if onUp == nil {
		onUp = nothing
	}
	if onDown == nil {
		onDown = nothing
	}
	return &agents{onUp: onUp, onDown: onDown, byID: make(map[string]*agent)}
}

func (r *agents) add(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	if a == nil {
		a = &agent{id: s.agentID, sessions: make(map[*session]struct{})}
		r.byID[s.agentID] = a
	}
	a.sessions[s] = struct{}{}
}

// takeOver makes s the agent's current session, ends the one before, and waits for its
// turn to log in. It returns the function to end that turn with, or false if s was itself
// taken over while it waited.
func (r *agents) takeOver(s *session) (leave func(), ok bool) {
	r.mu.Lock()
	a := r.byID[s.agentID]
	previous := a.current
	a.current = s
	r.mu.Unlock()
	if previous != nil {
		previous.kill(errReplaced)
	}
	a.entering.Lock()
	if s.isDone() {
		a.entering.Unlock()
		return nil, false
	}
	return a.entering.Unlock, true
}

// reachable notes that s can be dialled. Who listens is told by tell.
func (r *agents) reachable(s *session) *agent {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	if a != nil && a.current == s {
		a.online = true
	}
	return a
}

// remove forgets a session that is over.
func (r *agents) remove(s *session) {
	r.mu.Lock()
	a := r.byID[s.agentID]
	delete(a.sessions, s)
	if a.current == s {
		a.current, a.online = nil, false
	}
	r.mu.Unlock()
	r.tell(a)

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(a.sessions) == 0 && r.byID[a.id] == a {
		delete(r.byID, a.id)
	}
}

// tell brings whoever listens up to date. It may be called from several goroutines; each
// tells what is true by then, so that the last word is the right one.
func (r *agents) tell(a *agent) {
	if a == nil {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	r.mu.Lock()
	online := a.online
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

// current waits until the agent's current session can be dialled.
func (r *agents) current(ctx context.Context, id string) (*session, error) {
	for {
		r.mu.Lock()
		var s *session
		if a := r.byID[id]; a != nil {
			s = a.current
		}
		r.mu.Unlock()
		if s == nil {
			return nil, ErrNotConnected
		}
		select {
		case <-s.ready:
			return s, nil
		default:
		}
		select {
		case <-s.ready:
			return s, nil
		case <-s.done:
			if r.stillCurrent(s) {
				return nil, ErrNotConnected
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *agents) stillCurrent(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[s.agentID]
	return a != nil && a.current == s
}

func (r *agents) isOnline(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.byID[id]
	return a != nil && a.online
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
		if a.online {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *agents) count() (online, sessions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.byID {
		sessions += len(a.sessions)
		if a.online {
			online++
		}
	}
	return online, sessions
}
