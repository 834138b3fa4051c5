package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// GrantRunner changes a Runner's grant. It issues new credentials, because the certificate carries
// the grant, and revokes the old certificate. The new one lasts as long as the old one was made
// for.
func (a *Admin) GrantRunner(ctx context.Context, name string, agents runnerapi.Grant, broker string) (runnerapi.Credentials, error) {
	old, err := findRunner(ctx, a.store, name)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	if !old.RevokedAt.IsZero() {
		return runnerapi.Credentials{}, fmt.Errorf("Runner %s was revoked; make it anew with `pipeops-controlplane runner create %s --force`", name, name) //nolint:staticcheck // Runner is a name
	}
	return a.IssueRunner(ctx, RunnerOptions{Name: name, TTL: old.TTL, Agents: agents, BrokerURLFile: broker, Replace: true, reason: "runner grant"})
}

// runnerFinder is the store, or a transaction in it.
type runnerFinder interface {
	Runner(ctx context.Context, name string) (store.Runner, error)
}

func findRunner(ctx context.Context, in runnerFinder, name string) (store.Runner, error) {
	r, err := in.Runner(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return r, fmt.Errorf("there is no Runner %q; `pipeops-controlplane runner list` shows them", name)
	}
	return r, err
}

// LabelAgent sets some labels of an agent and removes others. For Runners that may no longer see
// the agent, it announces that the agent is gone.
func (a *Admin) LabelAgent(ctx context.Context, nameOrID string, set map[string]string, remove []string) (announce.Agent, error) {
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
			return fmt.Errorf("agent %s is revoked", found.Name)
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
		return d.relabel(ctx, tx, before, found, a.now())
	})
	if err != nil {
		return announce.Agent{}, err
	}
	return d.announced(found), nil
}

// relabel writes an agent whose labels have changed. It informs all whom that concerns: the agent,
// Runners that lose sight of it, and Runners that see it.
func (d directory) relabel(ctx context.Context, tx *store.Tx, before, after store.Agent, at time.Time) error {
	// The removal is announced with the old labels: see audience.
	if err := d.write(ctx, tx, announce.AgentRemoved, before, at); err != nil {
		return err
	}
	if err := d.write(ctx, tx, announce.AgentUpdated, after, at); err != nil {
		return err
	}
	return tx.AddNews(ctx, after.ID)
}

// visible returns the agents that a Runner may see.
func (c *ControlPlane) visible(ctx context.Context, runner string, agents []announce.Agent) ([]announce.Agent, error) {
	r, err := c.store.Runner(ctx, runner)
	if err != nil {
		return nil, err
	}
	grant, err := runnerapi.ParseGrant(r.Agents)
	if err != nil {
		return nil, fmt.Errorf("the grant of Runner %s: %w", runner, err)
	}
	seen := make([]announce.Agent, 0, len(agents))
	for _, a := range agents {
		if grant.Allows(a.Labels) {
			seen = append(seen, a)
		}
	}
	return seen, nil
}

// audience determines the Runners that an event is for: those that may see the agent.
type audience struct {
	grants map[string]runnerapi.Grant // by Runner
	labels map[string]agentLabels     // by agent
	store  *store.Store
}

// agentLabels are an agent's current labels; none if it is gone or revoked.
type agentLabels struct {
	there  bool
	labels map[string]string
}

func newAudience(ctx context.Context, s *store.Store, now time.Time) (*audience, error) {
	runners, err := s.Runners(ctx)
	if err != nil {
		return nil, err
	}
	a := &audience{grants: map[string]runnerapi.Grant{}, labels: map[string]agentLabels{}, store: s}
	for _, r := range runners {
		if !r.RevokedAt.IsZero() || now.After(renewableUntil(r.ExpiresAt, r.TTL)) {
			continue
		}
		if a.grants[r.Name], err = runnerapi.ParseGrant(r.Agents); err != nil {
			return nil, fmt.Errorf("the grant of Runner %s: %w", r.Name, err)
		}
	}
	return a, nil
}

// of returns the Runners that an event is for. An agent event is for Runners that may see the agent
// as the event describes it. The removal of an agent that still exists is only for those Runners
// that may not see its current state.
func (a *audience) of(ctx context.Context, e announce.Encoded) ([]string, error) {
	current, err := a.now(ctx, e.AgentID)
	if err != nil {
		return nil, err
	}
	labels, hidden := current.labels, false
	if e.Type.IsAgent() {
		agent, err := announcedIn(e)
		if err != nil {
			return nil, err
		}
		labels, hidden = agent.Labels, isHiding(e.Type, agent)
	}
	var runners []string
	for name, grant := range a.grants {
		if grant.Allows(labels) && (!hidden || !current.there || !grant.Allows(current.labels)) {
			runners = append(runners, name)
		}
	}
	return runners, nil
}

// announcedIn decodes only the parts of the agent that determine the recipients: events were
// validated when they entered the outbox.
func announcedIn(e announce.Encoded) (announce.Agent, error) {
	var said struct {
		Data struct {
			State  announce.State    `json:"state"`
			Labels map[string]string `json:"labels"`
		} `json:"data"`
	}
	if err := json.Unmarshal(e.Body, &said); err != nil {
		return announce.Agent{}, fmt.Errorf("event %s: %w", e.ID, err)
	}
	return announce.Agent{State: said.Data.State, Labels: said.Data.Labels}, nil
}

// isHiding reports whether an event announces an agent's removal to Runners that may no longer see
// it, although it still exists.
func isHiding(t announce.Type, agent announce.Agent) bool {
	return t == announce.AgentRemoved && agent.State != announce.StateRevoked
}

// meet reads at once all agents that the events are about.
func (a *audience) meet(ctx context.Context, waiting []store.Waiting) error {
	if len(waiting) == 0 {
		return nil
	}
	agents, err := a.store.AgentsWaiting(ctx, waiting[0].ID, waiting[len(waiting)-1].ID)
	for _, g := range agents {
		a.labels[g.ID] = agentLabels{there: !g.Revoked, labels: g.Labels}
	}
	return err
}

func (a *audience) now(ctx context.Context, agentID string) (agentLabels, error) {
	if known, ok := a.labels[agentID]; ok {
		return known, nil
	}
	agent, err := a.store.Agent(ctx, agentID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return agentLabels{}, err
	}
	a.labels[agentID] = agentLabels{there: err == nil && !agent.Revoked(), labels: agent.Labels}
	return a.labels[agentID], nil
}
