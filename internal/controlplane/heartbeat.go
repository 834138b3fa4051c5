package controlplane

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// takeBeat is a heartbeat but for the CA. It writes nothing unless something
// changed that a Runner goes by: that the agent lives is written in batches. Any
// replica says that it lives; what the agent is, only the one that leads, or two
// versions side by side would be news at each heartbeat.
func (r *registry) takeBeat(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	answer, err := r.hear(ctx, agentID, beat)
	if err != nil {
		return answer, err
	}
	var twin bool
	if answer.Ticket, twin = r.twins.beat(agentID, beat); twin {
		r.peers.clones.seen(ctx, agentID, announce.Clone{Instance: beat.Instance, Address: controlapi.OriginFrom(ctx).Address})
	}
	return answer, nil
}

func (r *registry) hear(ctx context.Context, agentID string, beat controlapi.Heartbeat) (controlapi.HeartbeatAnswer, error) {
	now := r.cfg.Now()
	if beat.Standby {
		r.liveness.beat(agentID, now, nil)
		return r.beatAnswer(ctx, agentID, nil, now)
	}
	capacity := capacityOf(beat.Capacity)
	r.liveness.beat(agentID, now, &capacity)
	if facts := factsOf(beat); r.facts.changed(agentID, facts) {
		if err := r.note(ctx, agentID, beat, capacity); err != nil {
			return controlapi.HeartbeatAnswer{}, err
		}
		r.facts.put(agentID, facts)
	}
	return r.beatAnswer(ctx, agentID, beat.Update, now)
}

func (r *registry) beatAnswer(ctx context.Context, agentID string, update *controlapi.Update, now time.Time) (controlapi.HeartbeatAnswer, error) {
	answer := controlapi.HeartbeatAnswer{IntervalSeconds: seconds(r.cfg.HeartbeatInterval)}
	var err error
	if answer.RevokedRunners, err = r.store.RevokedSerials(ctx, now); err != nil {
		return answer, err
	}
	agent, err := r.store.Agent(ctx, agentID)
	if answer.Labels = agent.Labels; err != nil || update == nil {
		return answer, err
	}
	answer.Offer, err = offerFor(ctx, r.store, agentID, update.Offer)
	return answer, err
}

// note writes what the agent says of itself and announces it if it is news.
func (r *registry) note(ctx context.Context, agentID string, beat controlapi.Heartbeat, capacity announce.Capacity) error {
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
		a.AgentVersion, a.RunnerAPIVersion = beat.AgentVersion, beat.RunnerAPIVersion
		a.KubernetesVersion, a.Distribution, a.Provider = beat.KubernetesVersion, beat.Distribution, beat.Provider
		a.Capacity, a.LastSeen, a.Update = capacity, now, announcedUpdate(beat.Update)
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

// sameForRunners says whether nothing changed that a Runner chooses agents by.
// What is in use changes all the time and is left to the snapshot.
func sameForRunners(a, b store.Agent) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) && a.EdgeAddress == b.EdgeAddress &&
		a.AgentVersion == b.AgentVersion && a.RunnerAPIVersion == b.RunnerAPIVersion &&
		a.KubernetesVersion == b.KubernetesVersion && a.Distribution == b.Distribution && a.Provider == b.Provider &&
		a.Capacity.Nodes == b.Capacity.Nodes && a.Capacity.Pods == b.Capacity.Pods &&
		a.Capacity.CPUMillis == b.Capacity.CPUMillis && a.Capacity.MemoryBytes == b.Capacity.MemoryBytes &&
		valueOf(a.Update) == valueOf(b.Update)
}

// facts are what sameForRunners compares of a heartbeat.
type facts struct {
	agentVersion, runnerAPIVersion, kubernetesVersion, distribution, provider string
	nodes                                                                     int
	pods, cpu, memory                                                         int64
	update                                                                    announce.AgentUpdate
}

func factsOf(b controlapi.Heartbeat) facts {
	return facts{b.AgentVersion, b.RunnerAPIVersion, b.KubernetesVersion, b.Distribution, b.Provider,
		b.Capacity.Nodes, b.Capacity.Pods, b.Capacity.CPUMillis, b.Capacity.MemoryBytes, valueOf(announcedUpdate(b.Update))}
}

// factsCache spares most heartbeats the transaction.
type factsCache struct{ m sync.Map }

func (c *factsCache) changed(agentID string, f facts) bool {
	last, ok := c.m.Load(agentID)
	return !ok || last != f
}

func (c *factsCache) put(agentID string, f facts) { c.m.Store(agentID, f) }

// forget makes the next heartbeat write again, after somebody else wrote.
func (c *factsCache) forget(agentID string) { c.m.Delete(agentID) }

// Events implements controlapi.Backend.
func (r *registry) Events(ctx context.Context, agentID string, events []controlapi.Event) error {
	now := r.cfg.Now()
	return r.store.Update(ctx, func(tx *store.Tx) error {
		for _, e := range events {
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

func appEventOf(a controlapi.AppEvent) announce.AppEvent {
	return announce.AppEvent{
		Namespace: a.Namespace, Name: a.Name, Image: a.Image, Generation: a.Generation,
		Replicas: int(a.Replicas), Ready: int(a.Ready), Cause: a.Cause, Message: a.Message, Fix: a.Fix,
	}
}
