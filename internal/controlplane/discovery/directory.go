// Package discovery has the agents as Runners see them: it writes changes with their announcements,
// determines the Runners that may see an agent, and serves lists, lookups and timelines.
package discovery

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Directory makes of what is stored what is announced.
type Directory struct {
	AgentsDomain string
}

// ServerName returns the name by which Runners reach an agent at the edge.
func (d Directory) ServerName(agentID string) string { return agentID + "." + d.AgentsDomain }

// Announced returns an agent as it is announced, without its hosts.
func (d Directory) Announced(a store.Agent) announce.Agent {
	edges := store.SplitEdges(a.EdgeAddress)
	endpoints := make([]announce.Endpoint, len(edges))
	for i, edge := range edges {
		endpoints[i] = announce.Endpoint{Address: edge, ServerName: d.ServerName(a.ID)}
	}
	return announce.Agent{
		ID: a.ID, Name: a.Name, Labels: a.Labels, State: a.State,
		Endpoints:         endpoints,
		KubernetesVersion: a.KubernetesVersion, Distribution: a.Distribution, Provider: a.Provider,
		AgentVersion: a.AgentVersion, RunnerAPIVersion: a.RunnerAPIVersion,
		Capacity: a.Capacity, Update: a.Update, Clones: a.Clones, Components: a.Components,
		RegisteredAt: a.RegisteredAt, LastSeen: a.LastSeen, Sequence: a.Sequence,
	}
}

// Write stores an agent and the announcement of it, as one.
func (d Directory) Write(ctx context.Context, tx *store.Tx, kind announce.Type, a store.Agent, at time.Time) error {
	if err := tx.UpdateAgent(ctx, a); err != nil {
		return err
	}
	announced := d.Announced(a)
	var err error
	if announced.Hosts, err = tx.HostsOf(ctx, a.ID, announce.MaxHosts); err != nil {
		return err
	}
	return Announce(ctx, tx, a.ID, at, func(source string, n uint64) (announce.Event, error) {
		return announce.NewAgentEvent(kind, source, announced, n, at)
	})
}

// Move announces agents again that Runners reach at another edge.
func (d Directory) Move(ctx context.Context, s *store.Store, agents []store.Agent, edge string, now func() time.Time) error {
	for _, a := range agents {
		if a.EdgeAddress == edge || a.Revoked() {
			continue
		}
		err := s.Update(ctx, func(tx *store.Tx) error {
			current, err := tx.Agent(ctx, a.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && current.Revoked() {
				return nil // since the agents were listed
			}
			if err != nil {
				return err
			}
			current.EdgeAddress = edge
			return d.Write(ctx, tx, announce.AgentUpdated, current, now())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Relabel writes an agent whose labels have changed. It informs all whom that concerns: the agent,
// Runners that lose sight of it, and Runners that see it.
func (d Directory) Relabel(ctx context.Context, tx *store.Tx, before, after store.Agent, at time.Time) error {
	// The removal is announced with the old labels: see audience.
	if err := d.Write(ctx, tx, announce.AgentRemoved, before, at); err != nil {
		return err
	}
	if err := d.Write(ctx, tx, announce.AgentUpdated, after, at); err != nil {
		return err
	}
	return tx.RequestRefresh(ctx, after.ID)
}

// CapacityOf returns a capacity as it is announced.
func CapacityOf(c controlapi.Capacity) announce.Capacity {
	return announce.Capacity{
		Nodes: c.Nodes, Pods: int(c.Pods), RunningPods: c.RunningPods, CPUMillis: c.CPUMillis, MemoryBytes: c.MemoryBytes,
		UsedCPUMillis: c.UsedCPUMillis, UsedMemoryBytes: c.UsedMemoryBytes,
	}
}

// SameForRunners reports whether nothing changed that a Runner chooses agents by. What is in use
// changes all the time and is left to the snapshot.
func SameForRunners(a, b store.Agent) bool {
	return a.Name == b.Name && maps.Equal(a.Labels, b.Labels) && a.EdgeAddress == b.EdgeAddress &&
		a.AgentVersion == b.AgentVersion && a.RunnerAPIVersion == b.RunnerAPIVersion &&
		a.KubernetesVersion == b.KubernetesVersion && a.Distribution == b.Distribution && a.Provider == b.Provider &&
		a.Capacity.Nodes == b.Capacity.Nodes && a.Capacity.Pods == b.Capacity.Pods &&
		a.Capacity.CPUMillis == b.Capacity.CPUMillis && a.Capacity.MemoryBytes == b.Capacity.MemoryBytes &&
		valueOf(a.Update) == valueOf(b.Update) && slices.EqualFunc(a.Components, b.Components, sameComponent)
}

// sameComponent leaves out the message, which may have figures that change.
func sameComponent(a, b announce.Component) bool {
	return a.Name == b.Name && a.Version == b.Version && a.Ready == b.Ready && a.Cause == b.Cause
}

// valueOf makes pointers comparable.
func valueOf(u *announce.AgentUpdate) announce.AgentUpdate {
	if u == nil {
		return announce.AgentUpdate{}
	}
	return *u
}
