package agents

import (
	"context"
	"errors"
	"time"

	"golang.org/x/mod/semver"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// offerFor returns what is offered to an agent: of all offers that are for it the highest version,
// so that a release that is tried on some agents first is not taken back by an older one for all.
// Expired releases are left out. The content is left out when the agent has it.
func offerFor(ctx context.Context, s *store.Store, agentID, has string, now time.Time) (*controlapi.Offer, error) {
	releases, err := s.Releases(ctx)
	if err != nil || len(releases) == 0 {
		return nil, err
	}
	agent, err := s.Agent(ctx, agentID)
	if err != nil {
		return nil, err
	}
	best := -1
	for i, r := range releases { // the last offer first
		if r.IsFor(agent) && now.Before(r.ExpiresAt) && (best < 0 || semver.Compare(r.Version, releases[best].Version) > 0) {
			best = i
		}
	}
	if best < 0 {
		return nil, nil
	}
	chosen := releases[best]
	if chosen.ID == has {
		return &controlapi.Offer{ID: chosen.ID, Version: chosen.Version}, nil
	}
	chosen, err = s.Release(ctx, chosen.ID)
	if errors.Is(err, store.ErrNotFound) { // withdrawn this moment
		return nil, nil
	}
	return &controlapi.Offer{
		ID: chosen.ID, Version: chosen.Version, Manifest: chosen.Manifest, Signature: chosen.Signature, URL: chosen.URL,
	}, err
}

// announcedUpdate returns what Runners get to know of an agent's update.
func announcedUpdate(u *controlapi.Update) *announce.AgentUpdate {
	if u == nil {
		return nil
	}
	return &announce.AgentUpdate{State: string(u.State), From: u.From, To: u.To, Reason: printable.Text(u.Reason)}
}
