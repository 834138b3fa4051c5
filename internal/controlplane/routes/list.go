package routes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Route is a public host, or a path of it, as the operator sees it.
type Route struct {
	URL       string   `json:"url"`
	Host      string   `json:"host"`
	Path      string   `json:"path"`
	PathType  string   `json:"pathType"`
	TLS       bool     `json:"tls"`
	Agent     Claimant `json:"agent"`
	Namespace string   `json:"namespace"`
	App       string   `json:"app,omitempty"`
	Service   string   `json:"service,omitempty"` // with its namespace if that is another one
	Port      int32    `json:"port,omitempty"`    // absent if the route cannot be carried
	// Protocol is that of a public port, TLS of a host whose connections keep their TLS, and absent
	// for requests of HTTP. PublicPort is the number of a public port; absent while there is none.
	Protocol   string `json:"protocol,omitempty"`
	PublicPort int    `json:"publicPort,omitempty"`
	Ready      bool   `json:"ready"`
	Served     bool   `json:"served"`          // the gateway serves the host from this agent
	Proof      string `json:"proof,omitempty"` // what proves that it may; empty for nothing
	Reason     string `json:"reason,omitempty"`
	// Mode is how requests come to the cluster, of a host that is served. Endpoint is the address
	// of the cluster's load balancer, and ModeReason why it is not used.
	Mode       string    `json:"mode,omitempty"`
	ModeReason string    `json:"modeReason,omitempty"`
	Endpoint   string    `json:"endpoint,omitempty"`
	Since      time.Time `json:"since"`
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

// List are the routes of all agents, or of one, ordered by host. Conflicts are computed over the
// routes of all agents.
type List struct {
	Items []Route `json:"items"`
	// Omitted is how many more routes the agents have than they may send.
	Omitted int `json:"omitted,omitempty"`
}

// Of returns the routes of an agent, or of all if the ID is empty.
// open are the ports that the operator has opened to Apps.
func Of(ctx context.Context, s *store.Store, only string, open ports.Open, now time.Time) (List, error) {
	known, err := readState(ctx, s, open)
	if err != nil {
		return List{}, err
	}
	list := List{Items: []Route{}}
	for _, r := range known.judge(now) {
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
	ports  []ports.Ruling
	sets   map[string]store.RouteSet
	failed map[string]store.CertificateFailure // by host
}

func readState(ctx context.Context, s *store.Store, open ports.Open) (known publicState, err error) {
	if known.routes, err = s.Routes(ctx); err != nil {
		return known, err
	}
	if known.agents, err = s.Agents(ctx); err != nil {
		return known, err
	}
	if known.claims, err = s.Claims(ctx); err != nil {
		return known, err
	}
	claims, err := s.PortClaims(ctx)
	if err != nil {
		return known, err
	}
	known.ports = ports.Settle(claims, open)
	if known.sets, err = s.RouteSets(ctx); err != nil {
		return known, err
	}
	failed, err := s.CertificateFailures(ctx)
	known.failed = make(map[string]store.CertificateFailure, len(failed))
	for _, f := range failed {
		known.failed[f.Host] = f
	}
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
	for of := range hosts.ByHost(p.claims) {
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
			Mode: status.Mode, ModeReason: status.ModeReason, Endpoint: r.Endpoint,
		}
		route.Protocol = r.Protocol
		if gatewaywire.IsPort(r.Protocol) {
			p.judgePort(&route, r, known)
			status.Served, status.Reason = route.Served, cmp.Or(route.Reason, r.Reason)
		}
		if !status.Served && r.Carried() {
			route.Reason = status.Reason
		}
		route.Served = route.Served && r.Carried()
		if failed, is := p.failed[r.Host]; is && r.Protocol == "" && route.Served && route.Reason == "" {
			route.Reason = NoCertificate(failed)
		}
		if now.Sub(p.sets[r.AgentID].At) >= gateway.RoutesTTL {
			route.Served, route.Mode, route.Reason = false, "", "the agent was not heard with this route for long"
		}
		if gatewaywire.IsPort(r.Protocol) {
			routes = append(routes, route)
			continue
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
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Path, b.Path), a.Since.Compare(b.Since), cmp.Compare(a.Agent.Name, b.Agent.Name))
	})
	return routes
}

// NoCertificate returns what is said of a host whose certificate could not be obtained or renewed.
func NoCertificate(f store.CertificateFailure) string {
	return "the gateway has no new certificate for the host, and tries again: " + f.Reason
}

// first records a claim and returns the first claimant.
func first(claims map[string]Claimant, what string, who Claimant) Claimant {
	if had, taken := claims[what]; taken {
		return had
	}
	claims[what] = who
	return who
}

// urlOf returns where the public reaches a host: the gateway serves HTTPS, and passes TLS on.
func urlOf(r store.Route) string {
	if r.Protocol == gatewaywire.TLS {
		return controlapi.PassedURL(r.Host)
	}
	return "https://" + r.Host + r.Path
}

// judgePort says of a public port where it is and who has it.
func (p publicState) judgePort(route *Route, r store.Route, agents map[string]Claimant) {
	route.Mode, route.Reason = controlapi.ModeTunnel, "the control plane has not looked at the port yet"
	for _, ruled := range p.ports {
		if ruled.AgentID != r.AgentID || ruled.Namespace != r.Namespace || ruled.App != r.App || ruled.Protocol != r.Protocol || ruled.Port != int(r.Port) {
			continue
		}
		route.Served, route.Reason, route.PublicPort = ruled.Served, ruled.Reason, ruled.Public()
		if ruled.Served {
			route.Proof, route.Reason = hosts.Given, r.Reason
		}
		if ruled.Holder != nil {
			holder := agents[ruled.Holder.AgentID]
			holder.Namespace, holder.App = ruled.Holder.Namespace, ruled.Holder.App
			route.HeldBy = &holder
		}
	}
	if !route.Served {
		route.Mode = ""
	}
	route.URL = controlapi.PortURL(r.Protocol, r.Host, route.PublicPort)
}
