package controlplane

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// eventSource names us in announcements (CloudEvents' source).
const eventSource = "/controlplane"

// directory makes of what is stored what is announced.
type directory struct {
	agentsDomain string
}

func (d directory) serverName(agentID string) string { return agentID + "." + d.agentsDomain }

func (d directory) announced(a store.Agent) announce.Agent {
	edges := edgesOf(a.EdgeAddress)
	endpoints := make([]announce.Endpoint, len(edges))
	for i, edge := range edges {
		endpoints[i] = announce.Endpoint{Address: edge, ServerName: d.serverName(a.ID)}
	}
	return announce.Agent{
		ID: a.ID, Name: a.Name, Labels: a.Labels, State: a.State,
		Endpoints:         endpoints,
		KubernetesVersion: a.KubernetesVersion, Distribution: a.Distribution, Provider: a.Provider,
		AgentVersion: a.AgentVersion, RunnerAPIVersion: a.RunnerAPIVersion,
		Capacity: a.Capacity, Update: a.Update, Clones: a.Clones,
		RegisteredAt: a.RegisteredAt, LastSeen: a.LastSeen, Sequence: a.Sequence,
	}
}

// write stores an agent and the announcement of it, as one.
func (d directory) write(ctx context.Context, tx *store.Tx, kind announce.Type, a store.Agent, at time.Time) error {
	if err := tx.UpdateAgent(ctx, a); err != nil {
		return err
	}
	n, err := tx.NextSequence(ctx, a.ID)
	if err != nil {
		return err
	}
	told := d.announced(a)
	if told.Hosts, err = tx.HostsOf(ctx, a.ID, announce.MaxHosts); err != nil {
		return err
	}
	event, err := announce.NewAgentEvent(kind, eventSource, told, n, at)
	if err != nil {
		return err
	}
	return tx.Enqueue(ctx, event)
}
