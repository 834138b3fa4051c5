package controlplane

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// takeBeat handles a heartbeat, except for the CA. It writes nothing unless something changed that
// matters to a Runner: signs of life are written in batches. Any replica reports that it lives.
// Only the leader reports the agent's properties; otherwise two versions side by side would be a
// change at each heartbeat.
func (r *registry) takeBeat(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	answer, err := r.hear(ctx, agentID, beat)
	if err != nil {
		return answer, err
	}
	var duplicate bool
	if answer.Ticket, duplicate = r.duplicates.beat(agentID, beat); duplicate {
		r.peers.clones.seen(ctx, agentID, announce.Clone{Instance: beat.Instance, Address: controlapi.OriginFrom(ctx).Address})
	}
	return answer, nil
}

func (r *registry) hear(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	now := r.cfg.Now()
	agent, err := r.caller(ctx, agentID)
	if err != nil {
		return controlapi.HeartbeatAnswer{}, err
	}
	if beat.Standby {
		r.liveness.beat(agentID, now, nil)
		return r.beatAnswer(ctx, agent, nil, now)
	}
	capacity := capacityOf(beat.Capacity)
	r.liveness.beat(agentID, now, &capacity)
	// By what is stored, and not by what was heard last: other control planes hear the
	// agent, too.
	if !sameForRunners(agent, saidBy(agent, beat)) {
		if err := r.note(ctx, agentID, beat); err != nil {
			return controlapi.HeartbeatAnswer{}, err
		}
	}
	return r.beatAnswer(ctx, agent, beat.Update, now)
}

// caller returns the agent that calls, as it was read to see whether it may.
func (r *registry) caller(ctx context.Context, agentID string) (store.Agent, error) {
	if c := callOf(ctx); c != nil && c.agent.ID == agentID {
		return c.agent, nil
	}
	agent, err := r.store.Agent(ctx, agentID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Agent{}, unknownAgent(agentID)
	case err != nil:
		return store.Agent{}, err
	}
	return agent, nil
}

func (r *registry) beatAnswer(ctx context.Context, agent store.Agent, update *controlapi.Update, now time.Time) (controlapi.HeartbeatAnswer, error) {
	answer := controlapi.HeartbeatAnswer{IntervalSeconds: seconds(r.cfg.HeartbeatInterval), Labels: agent.Labels, Tunnels: r.tunnels(agent.ID)}
	var err error
	if answer.RevokedRunners, err = r.store.RevokedSerials(ctx, now); err != nil {
		return answer, err
	}
	if answer.RevokedRunnerNames, err = r.store.RevokedRunners(ctx); err != nil || update == nil {
		return answer, err
	}
	answer.Offer, err = offerFor(ctx, r.store, agent.ID, update.Offer, now)
	return answer, err
}

// saidBy returns the agent with what a heartbeat reports about it.
func saidBy(a store.Agent, beat controlapi.Heartbeat) store.Agent {
	a.AgentVersion, a.RunnerAPIVersion = beat.AgentVersion, beat.RunnerAPIVersion
	a.KubernetesVersion, a.Distribution, a.Provider = beat.KubernetesVersion, beat.Distribution, beat.Provider
	a.Capacity, a.Update = capacityOf(beat.Capacity), announcedUpdate(beat.Update)
	return a
}

// note writes what the agent reports about itself and announces it if it has changed.
func (r *registry) note(ctx context.Context, agentID string, beat controlapi.Heartbeat) error {
	now := r.cfg.Now()
	return r.store.Update(ctx, func(tx *store.Tx) error {
		a, err := tx.Agent(ctx, agentID)
		if errors.Is(err, store.ErrNotFound) {
			return unknownAgent(agentID)
		}
		if err != nil {
			return err
		}
		before := a
		a = saidBy(a, beat)
		a.LastSeen = now
		if sameForRunners(before, a) {
			return nil
		}
		return r.directory.write(ctx, tx, announce.AgentUpdated, a, now)
	})
}

func capacityOf(c controlapi.Capacity) announce.Capacity {
	return announce.Capacity{
		Nodes: c.Nodes, Pods: int(c.Pods), RunningPods: c.RunningPods, CPUMillis: c.CPUMillis, MemoryBytes: c.MemoryBytes,
		UsedCPUMillis: c.UsedCPUMillis, UsedMemoryBytes: c.UsedMemoryBytes,
	}
}

// sameForRunners reports whether nothing changed that a Runner chooses agents by. What is in use
// changes all the time and is left to the snapshot.
func sameForRunners(a, b store.Agent) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) && a.EdgeAddress == b.EdgeAddress &&
		a.AgentVersion == b.AgentVersion && a.RunnerAPIVersion == b.RunnerAPIVersion &&
		a.KubernetesVersion == b.KubernetesVersion && a.Distribution == b.Distribution && a.Provider == b.Provider &&
		a.Capacity.Nodes == b.Capacity.Nodes && a.Capacity.Pods == b.Capacity.Pods &&
		a.Capacity.CPUMillis == b.Capacity.CPUMillis && a.Capacity.MemoryBytes == b.Capacity.MemoryBytes &&
		valueOf(a.Update) == valueOf(b.Update)
}

// Events implements controlapi.Backend.
func (r *registry) Events(ctx context.Context, agentID string, told controlapi.EventsRequest) error {
	now := r.cfg.Now()
	return r.store.Update(ctx, func(tx *store.Tx) error {
		if err := inOrder(ctx, tx, agentID, told.Leader); err != nil {
			return err
		}
		for _, e := range told.Events {
			fresh, err := tx.Received(ctx, agentID, e.ID, now)
			if err != nil {
				return err
			}
			if !fresh {
				continue
			}
			n, err := tx.NextSequence(ctx, agentID)
			if err != nil {
				return err
			}
			if e.Time.IsZero() {
				e.Time = now
			}
			event, err := announce.NewAppEvent(announce.Type(e.Type), eventSource, agentID, appEventOf(e.App), n, e.Time)
			if err != nil {
				return err
			}
			if err := tx.Enqueue(ctx, event); err != nil {
				return err
			}
		}
		return nil
	})
}

// inOrder refuses late events of a leader if its successor, or a later call of its own, has already
// been heard: it would report an App that is gone as existing. The lease by which replicas elect
// does not prevent that, since a request can be delayed for longer.
func inOrder(ctx context.Context, tx *store.Tx, agentID string, by *controlapi.Leadership) error {
	if by == nil {
		return nil
	}
	newest, err := tx.Leads(ctx, store.EventLeader{AgentID: agentID, Lease: by.Lease, Term: by.Term, Call: by.Call})
	if err == nil && !newest {
		err = controlapi.Errorf(problem.Conflict, "nothing to do: what became of the Apps has been told since",
			"these events are of a replica that leads no more, or came after later ones of its own (term %d, call %d)", by.Term, by.Call)
	}
	return err
}

func appEventOf(a controlapi.AppEvent) announce.AppEvent {
	return announce.AppEvent{
		Namespace: a.Namespace, Name: a.Name, Image: a.Image, Generation: a.Generation,
		Replicas: int(a.Replicas), Ready: int(a.Ready), Cause: a.Cause, Message: printable.Lines(a.Message), Fix: printable.Lines(a.Fix),
	}
}
