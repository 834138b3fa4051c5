// Package direct connects to clusters' own load balancers. It proves that a load balancer's address
// is that of the agent's cluster before any request goes there, looks at it all the time, and has
// no way to it while it does not answer. Then the gateway uses the agent's tunnel.
//
// The proof is the key of the TLS certificate. The agent reports through its tunnel which key its
// cluster presents for a host, and each connection must present the same.
package direct

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// Host is a host that may be reached at an endpoint.
type Host struct{ Name, AgentID, Endpoint string }

// Config configures a Prober. Key is required.
type Config struct {
	// Key asks an agent for the key that its cluster presents for a host: the SHA-256 of the
	// certificate's public key, in hex.
	Key func(ctx context.Context, agentID, host string) (string, error)
	// Allowed are networks that count as public. Refused are networks to which nothing connects.
	Allowed, Refused []netip.Prefix
	// Port is that of HTTPS; 443 if zero.
	Port   int
	Timing Timing
	// Changed is called when modes may have changed; it may be nil, and must not block.
	Changed func()
	Log     zerolog.Logger
}

// proveEvery is how often each host is proven again.
const proveEvery = 5 * time.Minute

// Timing is how often endpoints are looked at. Zero values select the defaults.
type Timing struct {
	// Check is how often an endpoint in use is tried (1 s), and Idle how often another one (30 s).
	// Connect is how long a connection may take (2 s).
	Check, Idle, Connect time.Duration
	// Again is how soon a host is proven again after a failure at first (5 s).
	Again time.Duration
}

func (t Timing) withDefaults() Timing {
	t.Check = cmp.Or(t.Check, time.Second)
	t.Idle = cmp.Or(t.Idle, 30*time.Second)
	t.Connect = cmp.Or(t.Connect, 2*time.Second)
	t.Again = cmp.Or(t.Again, 5*time.Second)
	return t
}

// Prober proves endpoints, and has the ways to them.
type Prober struct {
	cfg     Config
	own     ownAddresses
	changed wake.Signal

	mu      sync.RWMutex
	hosts   map[string]*host // by name
	targets map[targetKey]*target
}

type targetKey struct{ agentID, endpoint string }

// New returns a Prober without hosts.
func New(cfg Config) *Prober {
	cfg.Timing = cfg.Timing.withDefaults()
	cfg.Port = cmp.Or(cfg.Port, 443)
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	return &Prober{cfg: cfg, changed: wake.New(), hosts: map[string]*host{}, targets: map[targetKey]*target{}}
}

// Set replaces the hosts. What is proven of those that stay continues.
func (p *Prober) Set(hosts []Host) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stay := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		stay[h.Name] = true
		if had := p.hosts[h.Name]; had != nil {
			if had.Host == h {
				continue
			}
			p.remove(had)
		}
		p.add(h)
	}
	for name, h := range p.hosts {
		if !stay[name] {
			p.remove(h)
		}
	}
	p.changed.Raise()
}

func (p *Prober) add(h Host) {
	key := targetKey{h.AgentID, h.Endpoint}
	t := p.targets[key]
	if t == nil {
		t = newTarget(p, h.Endpoint)
		p.targets[key] = t
	}
	added := &host{Host: h, target: t}
	p.hosts[h.Name] = added
	t.add(added)
}

func (p *Prober) remove(h *host) {
	delete(p.hosts, h.Name)
	if h.target.remove(h) {
		delete(p.targets, targetKey{h.AgentID, h.Endpoint})
	}
}

// Run tries endpoints until the context ends.
func (p *Prober) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		p.mu.Lock()
		for _, t := range p.targets {
			if !t.started {
				t.started = true
				group.Go(func() { t.run(ctx) })
			}
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
		}
	}
}

// Way returns how a host of an agent is reached directly; nil if only the tunnel leads there.
func (p *Prober) Way(name, agentID string) *Way {
	p.mu.RLock()
	h := p.hosts[name]
	p.mu.RUnlock()
	if h == nil || h.AgentID != agentID || !h.proven.Load() {
		return nil
	}
	h.target.touch()
	l := h.target.link.Load()
	if l == nil {
		return nil
	}
	return &Way{h, l}
}

// State is how a host with an endpoint is reached.
type State struct {
	Host
	Direct bool
	Reason string // why not directly
}

// States returns the state of each host that was tried, by name.
func (p *Prober) States() []State {
	p.mu.RLock()
	defer p.mu.RUnlock()
	states := make([]State, 0, len(p.hosts))
	for _, h := range p.hosts {
		if s, known := h.state(); known {
			states = append(states, s)
		}
	}
	slices.SortFunc(states, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return states
}
