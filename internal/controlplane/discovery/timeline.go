package discovery

import (
	"context"
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Timeline returns a page of an agent's, for a Runner that may see the agent. Others learn nothing
// of it, not even that it is there.
func (v *View) Timeline(ctx context.Context, runner, agentID string, q announce.TimelineQuery) (announce.TimelinePage, error) {
	found, err := v.store.Agent(ctx, agentID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return announce.TimelinePage{}, err
	}
	seen := false
	if err == nil {
		if _, seen, err = v.visibleAgent(ctx, runner, found); err != nil {
			return announce.TimelinePage{}, err
		}
	}
	if !seen {
		return announce.TimelinePage{}, problem.Errorf(problem.NotFound, "list the agents with GET "+announce.SnapshotPath,
			"there is no agent with that ID, or none that this Runner is granted")
	}
	return TimelinePage(ctx, v.store, agentID, q)
}

// TimelinePage returns a page of an agent's timeline.
func TimelinePage(ctx context.Context, s *store.Store, agentID string, q announce.TimelineQuery) (page announce.TimelinePage, err error) {
	page.Events, page.More, err = s.TimelinePage(ctx, store.TimelineQuery{
		AgentID: agentID, Namespace: q.Namespace, App: q.App, Types: q.Types, Since: q.Since, Before: q.Before, After: q.After,
		OldestFirst: q.OldestFirst, Limit: q.Limit, Bytes: announce.MaxTimelineBytes,
	})
	return page, err
}
