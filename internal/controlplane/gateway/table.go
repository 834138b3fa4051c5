package gateway

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/direct"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ports"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// RoutesTTL is how long routes are served after their agent was last heard with them.
const RoutesTTL = 8 * time.Hour

// Host is a public host and the agent that serves it.
type Host struct {
	Name    string
	AgentID string
	// Given reports that the host is below the gateway's own domain.
	Given bool
	// Endpoint is the address of the cluster's own load balancer; empty for none.
	Endpoint string
	// Passed is the port of the App's Service if connections keep their TLS; 0 if the gateway ends
	// it.
	Passed int32
	heard  time.Time
}

// Table has the hosts that are served, in memory. Refresh follows the database. A lookup takes no
// longer with many hosts than with few.
type Table struct {
	store *store.Store
	now   func() time.Time

	refreshing sync.Mutex
	agents     map[string]agentRoutes
	claims     map[string]map[string]store.HostClaim // by host, by agent

	known chan struct{} // closed once the table was read

	open ports.Open // that the operator has opened to Apps

	mu    sync.RWMutex
	hosts map[string]*Host
	ports []Port // that Apps have
	own   *Host  // the gateway's own; nil for none
	// passes counts the hosts whose connections keep their TLS.
	passes int
}

// agentRoutes is what the table knows of one agent.
type agentRoutes struct {
	revision int64
	heard    time.Time
	hosts    []string
	// endpoints are those of the hosts that have one.
	endpoints map[string]string
	// passed are the ports of those whose connections keep their TLS.
	passed map[string]int32
}

// NewTable returns an empty Table.
func NewTable(s *store.Store, now func() time.Time) *Table {
	return &Table{store: s, now: now, agents: map[string]agentRoutes{}, claims: map[string]map[string]store.HostClaim{}, hosts: map[string]*Host{}, known: make(chan struct{})}
}

// SetOpen sets the ports that the operator has opened to Apps. It is called before Refresh.
func (t *Table) SetOpen(open ports.Open) { t.open = open }

// SetOwn gives the gateway a host of its own, which no agent can have. Config.Own answers there.
func (t *Table) SetOwn(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = &Host{Name: host}
}

// serves reports whether a host that the table has is served.
func (t *Table) serves(h *Host) bool {
	return h == t.own || t.now().Sub(h.heard) < RoutesTTL
}

// Lookup returns the host of a request, nil if no agent has it, and whether it is served: its agent
// was heard within RoutesTTL. The port is ignored. A wildcard covers one label.
func (t *Table) Lookup(host string) (found *Host, served bool) {
	host = normal(host)
	t.mu.RLock()
	defer t.mu.RUnlock()
	found = t.named(host)
	if found == nil {
		if _, parent, ok := strings.Cut(host, "."); ok {
			found = t.hosts["*."+parent]
		}
	}
	return found, found != nil && t.serves(found)
}

// named returns the host of a name; nil if there is none.
func (t *Table) named(host string) *Host {
	if t.own != nil && host == t.own.Name {
		return t.own
	}
	return t.hosts[host]
}

// Named reports whether a host is served by its own name, and not by a wildcard alone.
func (t *Table) Named(host string) bool {
	host = normal(host)
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := t.named(host)
	return found != nil && !strings.HasPrefix(host, "*.") && t.serves(found)
}

// normal returns a host in the form in which routes have it.
func normal(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Passes reports whether there may be hosts whose connections keep their TLS.
func (t *Table) Passes() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.passes > 0
}

// Hosts returns the names of the hosts that are served and need a certificate, sorted.
func (t *Table) Hosts() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := make([]string, 0, len(t.hosts)+1)
	for name, h := range t.hosts {
		if t.serves(h) && h.Passed == 0 {
			names = append(names, name)
		}
	}
	if t.own != nil {
		names = append(names, t.own.Name)
	}
	slices.Sort(names)
	return slices.Compact(names) // a grant may name the own host
}

// Owners returns the agents of the hosts that are served, by host.
func (t *Table) Owners() map[string]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	owners := make(map[string]string, len(t.hosts))
	for name, h := range t.hosts {
		if t.serves(h) {
			owners[name] = h.AgentID
		}
	}
	return owners
}

// endpoints returns the hosts with an endpoint that are served.
func (t *Table) endpoints() (list []direct.Host) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for name, h := range t.hosts {
		if h.Endpoint != "" && t.serves(h) {
			list = append(list, direct.Host{Name: name, AgentID: h.AgentID, Endpoint: h.Endpoint})
		}
	}
	return list
}

// Known reports whether the table was read from the database.
func (t *Table) Known() bool {
	select {
	case <-t.known:
		return true
	default:
		return false
	}
}

// await waits until the table was read, though not for long.
func (t *Table) await(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-t.known:
	case <-ctx.Done():
	case <-late.C:
	}
}

// Len returns how many hosts there are.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.hosts)
}

// Refresh reads what has changed in the database: one row for each agent, and the claims of those
// that have changed.
func (t *Table) Refresh(ctx context.Context) error {
	t.refreshing.Lock()
	defer t.refreshing.Unlock()
	err := t.refresh(ctx)
	if err == nil && !t.Known() {
		close(t.known)
	}
	return err
}

func (t *Table) refresh(ctx context.Context) error {
	sets, err := t.store.RouteSets(ctx)
	if err != nil {
		return err
	}
	if err := t.refreshPorts(ctx, sets); err != nil {
		return err
	}
	touched := map[string]bool{}
	defer func() { t.settle(touched) }() // also what was read before an error: it is not read again
	for id := range t.agents {
		if _, there := sets[id]; !there {
			t.replace(id, agentRoutes{}, nil, touched)
			delete(t.agents, id)
		}
	}
	for id, set := range sets {
		known, was := t.agents[id]
		if was && known.revision == set.Revision {
			if !known.heard.Equal(set.At) {
				known.heard = set.At
				t.agents[id] = known
				mark(touched, known.hosts)
			}
			continue
		}
		claims, err := t.store.ClaimsOf(ctx, id)
		if err != nil {
			return err
		}
		endpoints, err := t.store.EndpointsOf(ctx, id)
		if err != nil {
			return err
		}
		passed, err := t.store.PassedOf(ctx, id)
		if err != nil {
			return err
		}
		t.replace(id, agentRoutes{revision: set.Revision, heard: set.At, endpoints: endpoints, passed: passed}, claims, touched)
	}
	return nil
}

func mark(touched map[string]bool, names []string) {
	for _, name := range names {
		touched[name] = true
	}
}

// replace puts other claims of an agent in place.
func (t *Table) replace(agentID string, now agentRoutes, claims []store.HostClaim, touched map[string]bool) {
	for _, name := range t.agents[agentID].hosts {
		if delete(t.claims[name], agentID); len(t.claims[name]) == 0 {
			delete(t.claims, name)
		}
		touched[name] = true
	}
	for _, c := range claims {
		if t.claims[c.Host] == nil {
			t.claims[c.Host] = map[string]store.HostClaim{}
		}
		t.claims[c.Host][agentID] = c
		now.hosts = append(now.hosts, c.Host)
	}
	mark(touched, now.hosts)
	t.agents[agentID] = now
}

// settle finds the owners of hosts again.
func (t *Table) settle(touched map[string]bool) {
	if len(touched) == 0 {
		return
	}
	now := t.now()
	owners := make(map[string]*Host, len(touched))
	for name := range touched {
		owner, ok := hosts.Owner(slices.Collect(maps.Values(t.claims[name])), now)
		if ok {
			agent := t.agents[owner.AgentID]
			owners[name] = &Host{
				Name: name, AgentID: owner.AgentID, Given: owner.Proof == hosts.Given, Endpoint: agent.endpoints[name], Passed: agent.passed[name], heard: agent.heard,
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range touched {
		t.put(name, owners[name])
	}
}

// put has a host served, or no more if it is nil. The lock is held.
func (t *Table) put(name string, h *Host) {
	if had := t.hosts[name]; had != nil && had.Passed != 0 {
		t.passes--
	}
	if h == nil {
		delete(t.hosts, name)
		return
	}
	if t.hosts[name] = h; h.Passed != 0 {
		t.passes++
	}
}
