// Package liveness decides which agents are online, in one control plane or for several.
package liveness

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// MissedBeats is the number of missed heartbeats after which the lease of an agent ends.
	MissedBeats = 3
	// flushEvery is how often heartbeats are written, all in one transaction. They are written more
	// often if they arrive more often.
	flushEvery = 10 * time.Second
	// lookEvery is how often leases and grace periods are checked.
	lookEvery = time.Second
	// GatherFor is how long agents wait that connect right after another. When hundreds connect per
	// second, a check of all and a transaction for each cost more than admitting them. A single
	// agent does not wait.
	GatherFor = 100 * time.Millisecond
	// transitBatch is how many transitions are written in one transaction.
	transitBatch = 128
)

// Liveness decides which agents are online. An agent is online while its tunnel is up and its
// heartbeats arrive. It is offline after the tunnel was down for longer than a short grace period,
// or after three missed heartbeats. Each transition is announced once.
//
// Tunnel and API report from their goroutines; only run decides and writes.
type Liveness struct {
	store     *store.Store
	directory discovery.Directory
	log       zerolog.Logger
	now       func() time.Time
	grace     time.Duration
	lease     time.Duration

	flushEvery time.Duration

	// Heard is called with the length of the silence before a heartbeat; it may be nil.
	Heard     func(gap time.Duration)
	unwritten atomic.Pointer[error] // why the last heartbeats could not be written

	mu     sync.Mutex
	agents map[string]*vitals
	wake   wake.Signal
}

// vitals is what is known about an agent now.
type vitals struct {
	up       bool
	upSince  time.Time
	deadline time.Time // of the grace period, while the tunnel is down
	lastBeat time.Time
	led      time.Time          // when a leading replica was heard last
	capacity *announce.Capacity // nil while only standby replicas were heard
	unsaved  bool
	state    announce.State // as this process announced it last; empty before that
}

// Config says how long silence is not an outage.
type Config struct {
	Log zerolog.Logger
	Now func() time.Time
	// OfflineGrace is how long a tunnel may be down.
	OfflineGrace      time.Duration
	HeartbeatInterval time.Duration
}

// New returns what decides for one control plane.
func New(s *store.Store, d discovery.Directory, cfg Config) *Liveness {
	return &Liveness{
		store: s, directory: d, log: cfg.Log, now: cfg.Now, grace: cfg.OfflineGrace,
		lease: MissedBeats * cfg.HeartbeatInterval, flushEvery: min(flushEvery, cfg.HeartbeatInterval),
		agents: map[string]*vitals{}, wake: wake.New(),
	}
}

// Resume restores the state of the last run: agents that were online have until the end of the
// grace period to reconnect without an announcement.
func (l *Liveness) Resume(agents []store.Agent, grace time.Duration) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range agents {
		if a.State == announce.StateOnline {
			l.agents[a.ID] = &vitals{state: announce.StateOnline, deadline: now.Add(grace)}
		}
	}
}

func (l *Liveness) of(agentID string) *vitals {
	v, ok := l.agents[agentID]
	if !ok {
		v = &vitals{}
		l.agents[agentID] = v
	}
	return v
}

// TunnelUp implements server.Config.OnUp.
func (l *Liveness) TunnelUp(agentID string) {
	l.mu.Lock()
	v := l.of(agentID)
	v.up, v.upSince = true, l.now()
	l.mu.Unlock()
	l.poke()
}

// TunnelDown implements server.Config.OnDown.
func (l *Liveness) TunnelDown(agentID string) {
	l.mu.Lock()
	v := l.of(agentID)
	v.up, v.deadline = false, l.now().Add(l.grace)
	l.mu.Unlock()
	l.poke()
}

// Beat records a heartbeat, and the capacity if the heartbeat has one.
func (l *Liveness) Beat(agentID string, at time.Time, capacity *announce.Capacity) {
	l.mu.Lock()
	v := l.of(agentID)
	before := v.lastBeat
	v.lastBeat, v.unsaved = at, true
	if capacity != nil {
		v.led, v.capacity = at, capacity
	}
	back := v.up && v.state == announce.StateOffline
	l.mu.Unlock()
	if l.Heard != nil && !before.IsZero() {
		l.Heard(at.Sub(before))
	}
	if back {
		l.poke()
	}
}

// Leaderless reports whether no leading replica of the agent was heard for longer than an interval
// of heartbeats.
func (l *Liveness) Leaderless(agentID string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Sub(l.of(agentID).led) > l.lease/2
}

func (l *Liveness) poke() {
	l.wake.Raise()
}

// Seen adds what is not written yet to what is stored.
func (l *Liveness) Seen(a *store.Agent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.agents[a.ID]; ok && v.unsaved && v.lastBeat.After(a.LastSeen) {
		a.LastSeen = v.lastBeat
		if v.capacity != nil {
			a.Capacity = *v.capacity
		}
	}
}

// look announces the transitions that are due.
func (l *Liveness) look(ctx context.Context) { l.announce(ctx, l.due()) }

// announce writes and announces states, several in each transaction.
func (l *Liveness) announce(ctx context.Context, due map[string]announce.State) {
	for some := range slices.Chunk(slices.Sorted(maps.Keys(due)), transitBatch) {
		err := l.transit(ctx, some, due)
		if err == nil || ctx.Err() != nil {
			continue
		}
		for _, agentID := range some { // a failing one must not block the others
			if err := l.transit(ctx, []string{agentID}, due); err != nil && ctx.Err() == nil {
				l.log.Error().Err(err).Str("agent", agentID).Msg("failed to write the state; retrying")
			}
		}
	}
}

// due returns the agents whose announced state differs from the actual one.
func (l *Liveness) due() map[string]announce.State {
	now, due := l.now(), map[string]announce.State{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, v := range l.agents {
		if want := v.want(now, l.lease); want != "" && want != v.state {
			due[id] = want
		}
	}
	return due
}

// want returns the state that the agent should have, or empty while that is undecided.
func (v *vitals) want(now time.Time, lease time.Duration) announce.State {
	switch {
	case v.up && now.Sub(latest(v.upSince, v.lastBeat)) > lease:
		return announce.StateOffline
	case v.up:
		return announce.StateOnline
	case v.deadline.IsZero() || now.Before(v.deadline):
		return ""
	}
	return announce.StateOffline
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (l *Liveness) settle(agentID string, state announce.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, here := l.agents[agentID]; here {
		v.state = state
	}
}

// forget drops a revoked or removed agent.
func (l *Liveness) forget(agentID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.agents, agentID)
}

var errGone = errors.New("agent is gone")

// transit writes and announces the states of agents in one transaction. When many agents connect at
// once, a commit for each would take longer than the connections.
func (l *Liveness) transit(ctx context.Context, agents []string, due map[string]announce.State) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	from := map[string]announce.State{}
	err := l.store.Update(ctx, func(tx *store.Tx) error {
		for _, agentID := range agents {
			was, err := l.transitIn(ctx, tx, agentID, due[agentID])
			if err != nil && !errors.Is(err, errGone) {
				return err
			}
			if err == nil {
				from[agentID] = was
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, agentID := range agents {
		was, there := from[agentID]
		if !there {
			l.forget(agentID)
			continue
		}
		state := due[agentID]
		l.settle(agentID, state)
		if was != state {
			l.log.Info().Str("agent", agentID).Str("state", string(state)).Str("was", string(was)).Msg("agent changed state")
		}
	}
	return nil
}

// transitIn writes and announces a state, unless it is stored already.
func (l *Liveness) transitIn(ctx context.Context, tx *store.Tx, agentID string, state announce.State) (from announce.State, err error) {
	a, err := tx.Agent(ctx, agentID)
	if errors.Is(err, store.ErrNotFound) || err == nil && a.Revoked() {
		return "", errGone
	}
	if from = a.State; err != nil || from == state {
		return from, err
	}
	kind := announce.AgentOnline
	if state == announce.StateOffline {
		kind = announce.AgentOffline
	}
	a.State = state
	l.Seen(&a)
	return from, l.directory.Write(ctx, tx, kind, a, l.now())
}

// OldestBeat returns how long the agent has been silent that has been so for longest, of those
// whose tunnel is up.
func (l *Liveness) OldestBeat(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest := time.Duration(0)
	for _, v := range l.agents {
		if v.up {
			oldest = max(oldest, now.Sub(latest(v.upSince, v.lastBeat)))
		}
	}
	return oldest
}
