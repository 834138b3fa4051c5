package administration

import (
	"context"
	"errors"
	"maps"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// List returns the agents as they are announced, including revoked ones.
func (a *Agents) List(ctx context.Context) ([]announce.Agent, error) {
	stored, err := a.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := a.store.Hosts(ctx, announce.MaxHosts)
	if err != nil {
		return nil, err
	}
	list := make([]announce.Agent, len(stored))
	for i := range stored {
		list[i] = a.directory(ctx).Announced(stored[i])
		list[i].Hosts = hosts[stored[i].ID]
	}
	return list, nil
}

// Found is a page of agents, and figures about all of them.
type Found struct {
	Agents       []announce.Agent
	Total, Wrong int
	States       map[announce.State]int
	// FailedChecks are the names of the checks that failed, by the agent's ID.
	FailedChecks map[string][]string
}

// Find returns the agents that a query selects, as they are announced.
func (a *Agents) Find(ctx context.Context, q store.AgentQuery) (Found, error) {
	page, total, err := a.store.FindAgents(ctx, q)
	if err != nil {
		return Found{}, err
	}
	found := Found{Agents: make([]announce.Agent, len(page)), Total: total, FailedChecks: map[string][]string{}}
	if found.States, err = a.store.AgentStates(ctx); err != nil {
		return found, err
	}
	if found.Wrong, err = a.store.AgentsWrong(ctx); err != nil {
		return found, err
	}
	d, hosts := a.directory(ctx), map[string][]string{}
	if q.Limit == 0 {
		if hosts, err = a.store.Hosts(ctx, announce.MaxHosts); err != nil {
			return found, err
		}
	}
	for i := range page {
		found.Agents[i] = d.Announced(page[i])
		if failed := page[i].FailedChecks(); len(failed) > 0 {
			found.FailedChecks[page[i].ID] = failed
		}
		if found.Agents[i].Hosts = hosts[page[i].ID]; q.Limit == 0 {
			continue
		}
		if found.Agents[i].Hosts, err = a.store.HostsOf(ctx, page[i].ID, announce.MaxHosts); err != nil {
			return found, err
		}
	}
	return found, nil
}

// MaxAgentStates is how many agents States returns at most.
const MaxAgentStates = 10_000

// States returns the states of the agents that a query selects, with the value of a label. Those
// that need attention come first.
func (a *Agents) States(ctx context.Context, q store.AgentQuery, label string) (store.AgentStatesFound, error) {
	q.ByUrgency, q.Limit = true, MaxAgentStates
	return a.store.FindAgentStates(ctx, q, label)
}

// Detail is an agent with what only operators see of it.
type Detail struct {
	Agent  announce.Agent
	Checks *store.Checks
	Events []announce.Event
}

// Get returns an agent by name or ID, with its newest events.
func (a *Agents) Get(ctx context.Context, nameOrID string, events int) (detail Detail, err error) {
	found, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return detail, err
	}
	detail.Agent, detail.Checks = a.directory(ctx).Announced(found), found.Checks
	if detail.Agent.Hosts, err = a.store.HostsOf(ctx, found.ID, announce.MaxHosts); err != nil {
		return detail, err
	}
	detail.Events, err = a.store.Timeline(ctx, found.ID, events)
	return detail, err
}

type agentFinder interface {
	AgentNamed(ctx context.Context, name string) (store.Agent, error)
	Agent(ctx context.Context, id string) (store.Agent, error)
}

func findAgent(ctx context.Context, s agentFinder, nameOrID string) (store.Agent, error) {
	found, err := s.Agent(ctx, nameOrID)
	if errors.Is(err, store.ErrNotFound) {
		found, err = s.AgentNamed(ctx, nameOrID)
	}
	if errors.Is(err, store.ErrNotFound) {
		return store.Agent{}, missing("`pipeops-controlplane agent list` lists them", "there is no agent with the name or ID %q", nameOrID)
	}
	if err != nil {
		return store.Agent{}, err
	}
	return found, nil
}

// Revoke revokes an agent and announces that it is gone.
func (a *Agents) Revoke(ctx context.Context, nameOrID string) (announce.Agent, error) {
	d := a.directory(ctx)
	var found store.Agent
	err := a.store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if found, err = findAgent(ctx, tx, nameOrID); err != nil || found.Revoked() {
			return err
		}
		found.State, found.RevokedAt = announce.StateRevoked, a.now()
		return d.Write(ctx, tx, announce.AgentRemoved, found, a.now())
	})
	if err != nil {
		return announce.Agent{}, err
	}
	return d.Announced(found), nil
}

// Remove removes a revoked agent: its cluster may register again, as another agent.
func (a *Agents) Remove(ctx context.Context, nameOrID string) (announce.Agent, error) {
	var found store.Agent
	err := a.store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if found, err = findAgent(ctx, tx, nameOrID); err != nil {
			return err
		}
		if !found.Revoked() {
			return conflict("run `pipeops-controlplane agent revoke "+found.ID+"` first", "agent %s is not revoked", found.Name)
		}
		return tx.DeleteAgent(ctx, found.ID)
	})
	if err != nil {
		return announce.Agent{}, err
	}
	return a.directory(ctx).Announced(found), nil
}

// Timeline returns a page of an agent's timeline, by the agent's name or ID.
func (a *Agents) Timeline(ctx context.Context, nameOrID string, q announce.TimelineQuery) (announce.TimelinePage, error) {
	found, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return announce.TimelinePage{}, err
	}
	return discovery.TimelinePage(ctx, a.store, found.ID, q)
}

// Label sets some labels of an agent and removes others. For Runners that may no longer see
// the agent, it announces that the agent is gone.
func (a *Agents) Label(ctx context.Context, nameOrID string, set map[string]string, remove []string) (announce.Agent, error) {
	if err := selectable(set); err != nil {
		return announce.Agent{}, err
	}
	d := a.directory(ctx)
	var found store.Agent
	err := a.store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if found, err = findAgent(ctx, tx, nameOrID); err != nil {
			return err
		}
		if found.Revoked() {
			return conflict("remove it, and let its cluster register again", "agent %s is revoked", found.Name)
		}
		before := found
		found.Labels = maps.Clone(before.Labels)
		if found.Labels == nil {
			found.Labels = map[string]string{}
		}
		maps.Copy(found.Labels, set)
		for _, key := range remove {
			delete(found.Labels, key)
		}
		if maps.Equal(before.Labels, found.Labels) {
			return nil
		}
		return d.Relabel(ctx, tx, before, found, a.now())
	})
	if err != nil {
		return announce.Agent{}, err
	}
	return d.Announced(found), nil
}
