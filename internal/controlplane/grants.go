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

// GrantRunner gives a Runner other agents, by new credentials: what is granted is
// said by the certificate. The old one is refused from then on. The new one lasts
// as long as the old one was made for.
func (a *Admin) GrantRunner(ctx context.Context, name string, agents runnerapi.Grant, broker string) (runnerapi.Credentials, error) {
	old, err := findRunner(ctx, a.store, name)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	if !old.RevokedAt.IsZero() {
		return runnerapi.Credentials{}, fmt.Errorf("Runner %s was revoked; make it anew with `pipeops-controlplane runner create %s --force`", name, name) //nolint:staticcheck // Runner is a name
	}
	return a.IssueRunner(ctx, RunnerOptions{Name: name, TTL: old.ExpiresAt.Sub(old.CreatedAt), Agents: agents, BrokerURLFile: broker, Replace: true})
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

// LabelAgent sets labels of an agent and takes others away. Runners that may see
// it no more are told that it is gone.
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

// relabel writes an agent that has other labels than before, and tells everybody
// whom that concerns: the agent, Runners that lose sight of it, and those that see it.
func (d directory) relabel(ctx context.Context, tx *store.Tx, before, after store.Agent, at time.Time) error {
	// As removed it is announced with its old labels: see audience.
	if err := d.write(ctx, tx, announce.AgentRemoved, before, at); err != nil {
		return err
	}
	if err := d.write(ctx, tx, announce.AgentUpdated, after, at); err != nil {
		return err
	}
	return tx.AddNews(ctx, after.ID)
}

// visible keeps the agents that a Runner may see.
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

// audience says whom events are for: the Runners who may see the agent.
type audience struct {
	grants map[string]runnerapi.Grant // by Runner
	labels map[string]agentLabels     // by agent
	store  *store.Store
}

// agentLabels are an agent's as they are now; none when it is gone or revoked.
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
		if !r.RevokedAt.IsZero() || now.After(r.ExpiresAt) {
			continue
		}
		if a.grants[r.Name], err = runnerapi.ParseGrant(r.Agents); err != nil {
			return nil, fmt.Errorf("the grant of Runner %s: %w", r.Name, err)
		}
	}
	return a, nil
}

// of lists the Runners that an event is for. An agent event is for those who may
// see the agent as it tells of it; that one was removed, though it is there, is for
// those alone who may not see it as it is now.
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

// announcedIn reads of the agent in an event no more than it is addressed by: the
// events of the outbox were looked at whole when they were put there.
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

// isHiding says whether an event tells Runners who may see an agent no more that
// it is gone, though it is not.
func isHiding(t announce.Type, agent announce.Agent) bool {
	return t == announce.AgentRemoved && agent.State != announce.StateRevoked
}

// meet reads all agents at once that those events are about.
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
