package operatorapi

import (
	"context"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// foundAtMost is how many results of each kind a search has.
const foundAtMost = 20

// Search finds agents, their Apps and their public hosts.
var Search = Call[SearchInput, SearchResult]{
	Description{Method: "GET", Path: Prefix + "search", ID: "search", Role: administration.RoleViewer, Command: "agent list",
		Summary: "Find agents, Apps and public hosts"},
	func(ctx context.Context, a *administration.Admin, in *SearchInput) (out SearchResult, err error) {
		agents, err := a.Agents.Find(ctx, store.AgentQuery{Search: in.Query, Limit: foundAtMost})
		if err != nil {
			return out, err
		}
		out = SearchResult{Agents: agents.Agents, Hosts: []routes.Route{}}
		if out.Apps, err = a.Database().FindApps(ctx, in.Query, foundAtMost); err != nil {
			return out, err
		}
		list, err := a.Gateway.Routes(ctx, "")
		for _, r := range list.Items {
			if strings.Contains(r.Host, strings.ToLower(in.Query)) && len(out.Hosts) < foundAtMost {
				out.Hosts = append(out.Hosts, r)
			}
		}
		return out, err
	},
}

// SearchInput is what to find.
type SearchInput struct {
	Query string `query:"query" minLength:"1" maxLength:"256" doc:"Words that a result's name, ID, labels or namespace all have, in any case; for hosts, a part of the name."`
}

// SearchResult is what was found: at most 20 of each kind.
type SearchResult struct {
	Agents []announce.Agent `json:"agents" nullable:"false"`
	Apps   []store.FoundApp `json:"apps" nullable:"false"`
	Hosts  []routes.Route   `json:"hosts" nullable:"false"`
}
