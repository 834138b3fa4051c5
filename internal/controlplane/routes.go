package controlplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Routes implements controlapi.Backend.
func (r *registry) Routes(ctx context.Context, agentID string) (controlapi.RoutesState, error) {
	set, err := r.store.RouteSet(ctx, agentID)
	return controlapi.RoutesState{Digest: set.Digest}, err
}

// PutRoutes implements controlapi.Backend. Runners are informed if the agent's hosts have changed.
// That a route became ready they learn from app.healthy.
func (r *registry) PutRoutes(ctx context.Context, agentID string, req controlapi.RoutesRequest) (controlapi.RoutesState, error) {
	now := r.cfg.Now()
	set := store.RouteSet{Digest: req.Digest(), Omitted: req.Omitted, At: now}
	err := r.store.Update(ctx, func(tx *store.Tx) error {
		a, err := tx.Agent(ctx, agentID)
		if errors.Is(err, store.ErrNotFound) {
			return unknownAgent(agentID)
		}
		if err != nil {
			return err
		}
		known, err := tx.RouteSet(ctx, agentID)
		if err != nil || known.Digest == set.Digest {
			return err // sent again: the answer was lost
		}
		had, err := tx.RoutesOf(ctx, agentID)
		if err != nil {
			return err
		}
		routes := routesOf(req.Routes, had, now)
		if err := tx.PutRoutes(ctx, agentID, routes, set); err != nil {
			return err
		}
		if slices.Equal(hostsOf(had), hostsOf(routes)) {
			return nil
		}
		return r.directory.write(ctx, tx, announce.AgentUpdated, a, now)
	})
	return controlapi.RoutesState{Digest: set.Digest}, err
}

// routesOf returns the routes that an agent sent. An existing route keeps its time.
func routesOf(sent []controlapi.Route, had []store.Route, now time.Time) []store.Route {
	type key struct{ host, path, pathType, namespace, app string }
	since := make(map[key]time.Time, len(had))
	for _, r := range had {
		since[key{r.Host, r.Path, r.PathType, r.Namespace, r.App}] = r.Since
	}
	routes := make([]store.Route, 0, len(sent))
	for _, r := range sent {
		at, known := since[key{r.Host, r.Path, r.PathType, r.Namespace, r.App}]
		if !known {
			at = now
		}
		routes = append(routes, store.Route{
			Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS, Namespace: r.Namespace, App: r.App,
			Port: r.Port, Ready: r.Ready, Reason: printable.Text(r.Reason), Since: at,
		})
	}
	return routes
}

func hostsOf(routes []store.Route) []string {
	hosts := make([]string, 0, len(routes))
	for _, r := range routes {
		hosts = append(hosts, r.Host)
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Route is a public host, or a path of it, as the operator sees it.
type Route struct {
	URL       string    `json:"url"`
	Host      string    `json:"host"`
	Path      string    `json:"path"`
	PathType  string    `json:"pathType"`
	TLS       bool      `json:"tls"`
	Agent     Claimant  `json:"agent"`
	Namespace string    `json:"namespace"`
	App       string    `json:"app"`
	Port      int32     `json:"port"`
	Ready     bool      `json:"ready"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since"`
	// HeldBy is the earlier holder of the host, or of this path. DNS and the clusters' ingress
	// controllers decide where the host leads, so one of the two routes is a mistake.
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
	stored, err := a.store.Routes(ctx)
	if err != nil {
		return Routes{}, err
	}
	agents, err := a.store.Agents(ctx)
	if err != nil {
		return Routes{}, err
	}
	omitted, err := a.store.OmittedRoutes(ctx)
	if err != nil {
		return Routes{}, err
	}
	list := Routes{Items: []Route{}}
	for _, r := range judge(stored, agents) {
		if only == "" || r.Agent.ID == only {
			list.Items = append(list.Items, r)
		}
	}
	for id, n := range omitted {
		if only == "" || id == only {
			list.Omitted += n
		}
	}
	return list, nil
}

// judge orders routes by host and marks those that another claimant already has. Of two agents, the
// earlier one has the host; of two Apps of one agent, the earlier one has the path.
func judge(stored []store.Route, agents []store.Agent) []Route {
	known := make(map[string]Claimant, len(agents))
	for _, g := range agents {
		known[g.ID] = Claimant{ID: g.ID, Name: g.Name, State: g.State}
	}
	// By time, to find the earlier claimant.
	slices.SortStableFunc(stored, func(a, b store.Route) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.AgentID, b.AgentID))
	})
	hosts, paths := map[string]Claimant{}, map[string]Claimant{}
	routes := make([]Route, 0, len(stored))
	for _, r := range stored {
		agent := known[r.AgentID]
		route := Route{
			URL: urlOf(r), Host: r.Host, Path: r.Path, PathType: r.PathType, TLS: r.TLS, Agent: agent, Namespace: r.Namespace, App: r.App,
			Port: r.Port, Ready: r.Ready, Reason: r.Reason, Since: r.Since,
		}
		agent.Namespace, agent.App = r.Namespace, r.App
		host := first(hosts, r.Host, agent)
		path := first(paths, r.AgentID+" "+r.Host+" "+r.PathType+" "+r.Path, agent)
		switch {
		case host.ID != r.AgentID:
			host.Namespace, host.App = "", ""
			route.HeldBy = &host
		case path != agent:
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

func urlOf(r store.Route) string {
	if r.TLS {
		return "https://" + r.Host + r.Path
	}
	return "http://" + r.Host + r.Path
}
