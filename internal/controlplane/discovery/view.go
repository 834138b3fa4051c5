package discovery

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// visible returns the agents that a Runner may see.
func (v *View) visible(ctx context.Context, runner string, agents []announce.Agent) ([]announce.Agent, error) {
	r, err := v.store.Runner(ctx, runner)
	if err != nil {
		return nil, err
	}
	grant, err := credentials.ParseGrant(r.Agents)
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

// View is the agents as Runners see them: each Runner those that it is granted.
type View struct {
	store     *store.Store
	directory Directory
	// seen adds to an agent what is not written yet.
	seen func(*store.Agent)
}

// NewView returns the view for Runners.
func NewView(s *store.Store, d Directory, seen func(*store.Agent)) *View {
	return &View{store: s, directory: d, seen: seen}
}

// Snapshot returns what a Runner starts from.
func (v *View) Snapshot(ctx context.Context, runner string) ([]announce.Agent, error) {
	stored, err := v.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := v.store.Hosts(ctx, announce.MaxHosts)
	if err != nil {
		return nil, err
	}
	list := make([]announce.Agent, 0, len(stored))
	for _, a := range stored {
		if a.Revoked() {
			continue
		}
		v.seen(&a)
		announced := v.directory.Announced(a)
		announced.Hosts = hosts[a.ID]
		list = append(list, announced)
	}
	return v.visible(ctx, runner, list)
}
