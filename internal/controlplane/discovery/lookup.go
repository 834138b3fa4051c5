package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/similar"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// maxSuggestions bounds the names in an answer to one that no agent has.
	maxSuggestions = 10
	// maxAgentName is the longest name that an agent can have.
	maxAgentName = 63
)

// LookUp returns the agent with an ID or name, for a Runner that may see it. Names are unique among
// agents that are not revoked: the store's index ensures that.
func (v *View) LookUp(ctx context.Context, runner, nameOrID string) (announce.Agent, error) {
	for _, find := range []func(context.Context, string) (store.Agent, error){v.store.Agent, v.store.AgentNamed} {
		found, err := find(ctx, nameOrID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return announce.Agent{}, err
		}
		if agent, ok, err := v.visibleAgent(ctx, runner, found); err != nil || ok {
			return agent, err
		}
	}
	return announce.Agent{}, v.unknownAgent(ctx, runner, nameOrID)
}

// visibleAgent returns the agent as Runners see it, and reports whether this Runner may see it.
func (v *View) visibleAgent(ctx context.Context, runner string, found store.Agent) (announce.Agent, bool, error) {
	if found.Revoked() {
		return announce.Agent{}, false, nil
	}
	v.seen(&found)
	agent := v.directory.Announced(found)
	var err error
	if agent.Hosts, err = v.store.HostsOf(ctx, found.ID, announce.MaxHosts); err != nil {
		return announce.Agent{}, false, err
	}
	seen, err := v.visible(ctx, runner, []announce.Agent{agent})
	if err != nil || len(seen) == 0 {
		return announce.Agent{}, false, err
	}
	return agent, true, nil
}

// unknownAgent returns the same error for an agent that does not exist and for one that the Runner
// is not granted. It names agents that the Runner may see, those with the most similar names.
func (v *View) unknownAgent(ctx context.Context, runner, asked string) error {
	agents, err := v.Snapshot(ctx, runner)
	if err != nil {
		return err
	}
	fix := "list the agents with GET " + announce.SnapshotPath
	switch {
	case len(agents) == 0:
		fix = "this Runner is granted no agent that is registered: install one with a token of `pipeops-controlplane token create`, " +
			"or have the operator grant this Runner others"
	case len(asked) <= maxAgentName:
		names := make([]string, len(agents))
		for i, a := range agents {
			names[i] = a.Name
		}
		few := strings.Join(similar.Sorted(asked, names)[:min(len(names), maxSuggestions)], ", ")
		fix = "use one of: " + few
		if meant := similar.Nearest(asked, names); meant != "" {
			fix = fmt.Sprintf("did you mean %q? The most similar names are: %s", meant, few)
		}
	}
	return problem.Errorf(problem.NotFound, fix, "no agent has that name or ID, or this Runner is not granted it")
}
