package controlplane

import (
	"context"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// reachTogether is how many hosts are checked at the same time, and reachEach how many of one
// agent: its Apps may be slow.
const reachTogether, reachEach = 32, 4

// reach finds out whether visitors of a host get its App's answer. Once they did, that holds until
// another agent serves the host.
type reach struct {
	store  *store.Store
	served func(host string) bool
	check  func(ctx context.Context, host, path string) error
	wake   wake.Signal

	mu    sync.Mutex
	known map[string]*reached // by host
}

// reached is what is known of a host at an agent.
type reached struct {
	agentID string
	state   string
	asked   bool   // to be checked
	reason  string // why not
}

func newReach(s *store.Store, served func(host string) bool, check func(ctx context.Context, host, path string) error) *reach {
	return &reach{store: s, served: served, check: check, wake: wake.New(), known: map[string]*reached{}}
}

// of returns whether visitors of an agent's host get an answer, and why not. While they do not,
// that is looked at again for the next call.
func (r *reach) of(agentID, host string) (state, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.known[host]
	if at == nil || at.agentID != agentID {
		at = &reached{agentID: agentID, state: controlapi.ReachPending, reason: "the gateway tries whether the App answers; wait a few seconds"}
		r.known[host] = at
	}
	if at.state != controlapi.ReachReady {
		at.asked = true
		r.wake.Raise()
	}
	return at.state, at.reason
}

// Run checks hosts until the context ends.
func (r *reach) Run(ctx context.Context) error {
	workers := limit.NewWorkers(reachTogether, reachEach, r.wake.Raise)
	defer workers.Wait()
	for r.wake.Wait(ctx) {
		for host, agentID := range r.due() {
			workers.Try(agentID, host, func() { r.look(ctx, agentID, host) })
		}
	}
	return nil
}

// due returns the agents of the hosts to check, and forgets hosts that are no longer served.
func (r *reach) due() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := map[string]string{}
	for host, at := range r.known {
		switch {
		case at.asked:
			due[host] = at.agentID
		case !r.served(host):
			delete(r.known, host)
		}
	}
	return due
}

// asked notes that a host is being checked: who asks from now on has it checked again.
func (r *reach) asked(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.known[host]; at != nil {
		at.asked = false
	}
}

func (r *reach) look(ctx context.Context, agentID, host string) {
	r.asked(host)
	path, err := r.pathOf(ctx, agentID, host)
	if err == nil {
		err = r.check(ctx, host, path)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.known[host]; at != nil && at.agentID == agentID && ctx.Err() == nil {
		if at.state, at.reason = controlapi.ReachReady, ""; err != nil {
			at.state, at.reason = controlapi.ReachFailed, printable.Text(err.Error())
		}
	}
}

// pathOf returns a path of the host at which the agent serves something.
func (r *reach) pathOf(ctx context.Context, agentID, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	routes, err := r.store.RoutesOf(ctx, agentID)
	for _, route := range routes {
		if route.Host == host && route.Path != "" {
			return route.Path, err
		}
	}
	return "/", err
}
