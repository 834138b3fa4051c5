package controlplane

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Route is a public host, or a path of it, as the operator sees it.
type Route struct {
	URL       string    `json:"url"`
	Host      string    `json:"host"`
	Path      string    `json:"path"`
	PathType  string    `json:"pathType"`
	TLS       bool      `json:"tls"`
	Agent     Claimant  `json:"agent"`
	Namespace string    `json:"namespace"`
	App       string    `json:"app,omitempty"`
	Service   string    `json:"service"`
	Port      int32     `json:"port"`
	Ready     bool      `json:"ready"`
	Served    bool      `json:"served"`          // the gateway serves the host from this agent
	Proof     string    `json:"proof,omitempty"` // what proves that it may; empty for nothing
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
	// HeldBy is the agent that serves the host, if that is another one, or the App of this agent
	// that had the path before.
	HeldBy *Claimant `json:"heldBy,omitempty"`
}

// Claimant is an agent that has a host and, for a conflict within one agent, the App that has it.
type Claimant struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	State     announce.State `json:"state"`
	Namespace string         `json:"namespace,omitempty"`
	App       string         `json:"app,omitempty"`
}

// Routes are the routes of all agents, or of one, ordered by host. Conflicts are computed over the
// routes of all agents.
type Routes struct {
	Items []Route `json:"items"`
	// Omitted is how many more routes the agents have than they may send.
	Omitted int `json:"omitted,omitempty"`
}

// Routes returns the routes of an agent, or of all if the name is empty.
func (a *Admin) Routes(ctx context.Context, nameOrID string) (Routes, error) {
	only := ""
	if nameOrID != "" {
		found, err := findAgent(ctx, a.store, nameOrID)
		if err != nil {
			return Routes{}, err
		}
		only = found.ID
	}
	known, err := a.publicState(ctx)
	if err != nil {
		return Routes{}, err
	}
	list := Routes{Items: []Route{}}
	for _, r := range known.judge(a.now()) {
		if only == "" || r.Agent.ID == only {
			list.Items = append(list.Items, r)
		}
	}
	for id, set := range known.sets {
		if only == "" || id == only {
			list.Omitted += set.Omitted
		}
	}
	return list, nil
}

// publicState is what is stored about the public hosts of all agents.
type publicState struct {
	routes []store.Route
	agents []store.Agent
	claims []store.HostClaim
	sets   map[string]store.RouteSet
}

func (a *Admin) publicState(ctx context.Context) (known publicState, err error) {
	if known.routes, err = a.store.Routes(ctx); err != nil {
		return known, err
	}
	if known.agents, err = a.store.Agents(ctx); err != nil {
		return known, err
	}
	if known.claims, err = a.store.Claims(ctx); err != nil {
		return known, err
	}
	known.sets, err = a.store.RouteSets(ctx)
	return known, err
}

// judge orders routes by host and marks those that are not served. Of two agents, the one with the
// better proof has the host; of two Apps of one agent, the earlier one has the path.
func (p publicState) judge(now time.Time) []Route {
	known := make(map[string]Claimant, len(p.agents))
	for _, g := range p.agents {
		known[g.ID] = Claimant{ID: g.ID, Name: g.Name, State: g.State}
	}
	claims := map[string][]store.HostClaim{}
	for of := range chunksByHost(p.claims) {
		claims[of[0].Host] = of
	}
	// By time, to find the earlier claimant.
	slices.SortStableFunc(p.routes, func(a, b store.Route) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.AgentID, b.AgentID))
	})
	paths := map[string]Claimant{}
	routes := make([]Route, 0, len(p.routes))
	for _, r := range p.routes {
		agent := known[r.AgentID]
		status := hosts.Status(r.AgentID, r.Host, claims[r.Host], now)
		route := Route{
			URL: urlOf(r), Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS, Agent: agent, Namespace: r.Namespace, App: r.App,
			Service: r.Service, Port: r.Port, Ready: r.Ready, Served: status.Served, Proof: status.Proof, Reason: r.Reason, Since: r.Since,
		}
		if !status.Served {
			route.Reason = status.Reason
		}
		if now.Sub(p.sets[r.AgentID].At) >= gateway.RoutesTTL {
			route.Served, route.Reason = false, "the agent was not heard with this route for long"
		}
		if owner, ok := hosts.Owner(claims[r.Host], now); ok && owner.AgentID != r.AgentID {
			holder := known[owner.AgentID]
			route.HeldBy = &holder
		}
		agent.Namespace, agent.App = r.Namespace, cmp.Or(r.App, r.Service)
		if path := first(paths, r.AgentID+" "+r.Host+" "+r.PathType+" "+r.Path, agent); route.HeldBy == nil && path != agent {
			route.HeldBy = &path
		}
		routes = append(routes, route)
	}
	slices.SortStableFunc(routes, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Path, b.Path), a.Since.Compare(b.Since), cmp.Compare(a.Agent.Name, b.Agent.Name))
	})
	return routes
}

// first records a claim and returns the first claimant.
func first(claims map[string]Claimant, what string, who Claimant) Claimant {
	if had, taken := claims[what]; taken {
		return had
	}
	claims[what] = who
	return who
}

// urlOf returns where the public reaches a route: the gateway serves HTTPS alone.
func urlOf(r store.Route) string { return "https://" + r.Host + r.Path }
