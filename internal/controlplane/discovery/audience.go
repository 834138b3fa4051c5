package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// audience determines the Runners that an event is for: those that may see the agent.
type audience struct {
	grants map[string]credentials.Grant // by Runner
	labels map[string]agentLabels       // by agent
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
	a := &audience{grants: map[string]credentials.Grant{}, labels: map[string]agentLabels{}, store: s}
	for _, r := range runners {
		if r.OpenID != nil || // it gets no announcements
			!r.RevokedAt.IsZero() || now.After(authn.RenewableUntil(r.ExpiresAt, r.TTL)) {
			continue
		}
		if a.grants[r.Name], err = credentials.ParseGrant(r.Agents); err != nil {
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
		labels, hidden = agent.Labels, store.IsHiding(e.Type, agent)
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

// Addressed returns events with the Runners that they are now for.
func Addressed(ctx context.Context, s *store.Store, waiting []store.Waiting, now time.Time) ([]announce.Encoded, error) {
	audience, err := newAudience(ctx, s, now)
	if err != nil {
		return nil, err
	}
	if err := audience.meet(ctx, waiting); err != nil {
		return nil, err
	}
	events := make([]announce.Encoded, len(waiting))
	for i, w := range waiting {
		events[i] = w.Event
		if events[i].Runners, err = audience.of(ctx, w.Event); err != nil {
			return nil, err
		}
	}
	return events, nil
}
