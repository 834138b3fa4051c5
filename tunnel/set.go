package tunnel

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// SetSize is how many tunnels a Set keeps: one may die, and the other is there already.
	SetSize = 2
	// maxTold bounds how much of a list of endpoints is read.
	maxTold = 64
	// maxLeaving bounds how many tunnels that are left may still carry what is connected.
	maxLeaving = 2 * SetSize
)

// SetConfig configures a Set.
type SetConfig struct {
	// Config is the common configuration of its tunnels. ServerAddress and ServerName are those of
	// the fallback: a server that is known in advance.
	Config
	// Refused is called when a server refuses this agent for good. The other tunnels go on, and
	// this one is retried after RefusedPause, or after Retry.
	Refused func(at Endpoint, err error)
	// RefusedPause is how long a server that refused the agent is left alone (15 s).
	RefusedPause time.Duration
	// FallbackAfter is how long no tunnel may be up before the fallback is tried as well
	// (5 s).
	FallbackAfter time.Duration
	// Leave is how long what is connected through a tunnel that is not to be kept any
	// more may go on (20 s).
	Leave time.Duration
}

// Set keeps one agent connected to several servers at a time, so that one of them may fail. The
// servers may change at any time. Connections of Runners come out of one listener, from all
// tunnels.
type Set struct {
	cfg      SetConfig
	fallback Endpoint
	listener *listener
	public   *listener
	look     wake.Signal // that there is something to arrange

	running sync.WaitGroup // of Run

	mu       sync.Mutex
	wanted   []Endpoint
	members  []*member // the oldest first, those that leave included
	draining bool
	up       bool
	since    time.Time // of up
	attempt  *attempt  // of a first attempt, or of the next since none is up
	returns  int
	retried  chan struct{} // closed by the next Retry
	next     chan struct{} // closed at the next change
}

// SetStatus is a snapshot of a Set.
type SetStatus struct {
	// Phase is Connected if a tunnel is up, else that of the best one.
	Phase Phase
	// Nodes are the servers to which there must be a tunnel, the best first, followed by others
	// that are connected in place of one of them.
	Nodes []NodeStatus
	// Returns counts how often a tunnel came up while none was, the first time included.
	Returns int
}

// NodeStatus is the tunnel to one server.
type NodeStatus struct {
	Endpoint
	Status
	// Wanted is false of one that is connected in place of another.
	Wanted bool
}

// NewSet returns a Set after it has checked the configuration. The Set keeps a tunnel to the
// fallback until Keep changes that. Run connects.
func NewSet(cfg SetConfig) (*Set, error) {
	if _, err := New(cfg.Config); err != nil {
		return nil, err
	}
	if cfg.Refused == nil {
		cfg.Refused = func(Endpoint, error) {}
	}
	cfg.RefusedPause = cmp.Or(cfg.RefusedPause, 15*time.Second)
	cfg.FallbackAfter = cmp.Or(cfg.FallbackAfter, 5*time.Second)
	cfg.Leave = cmp.Or(cfg.Leave, 20*time.Second)
	fallback := Endpoint{Address: cfg.ServerAddress, ServerName: cfg.ServerName}.normal()
	return &Set{
		cfg: cfg, fallback: fallback, wanted: []Endpoint{fallback}, listener: newListener(cfg.AgentID), public: newListener(cfg.AgentID),
		look: wake.New(), attempt: newAttempt(firstPatience), since: time.Now(), retried: make(chan struct{}), next: make(chan struct{}),
	}, nil
}

// Keep sets the servers to which there must be a tunnel from now on, the best first, and the
// fallback, which is used alone if endpoints is empty. It uses and returns the first two. Tunnels
// that stay are not touched, and an old tunnel is closed once a new one is up. The error names
// invalid endpoints, which are skipped; if none is left, nothing changes.
func (s *Set) Keep(endpoints []Endpoint, fallback Endpoint) ([]Endpoint, error) {
	chosen, err := choose(endpoints)
	s.mu.Lock()
	defer s.mu.Unlock()
	if bad := fallback.Check(); bad != nil {
		err = errors.Join(err, bad)
	} else {
		s.fallback = fallback.normal()
	}
	switch {
	case len(endpoints) == 0:
		chosen = []Endpoint{s.fallback}
	case len(chosen) == 0:
		return slices.Clone(s.wanted), err
	}
	if !slices.Equal(s.wanted, chosen) {
		s.wanted = chosen
		s.changedLocked()
	}
	return slices.Clone(chosen), err
}

// Retry makes the servers that refused the agent be tried again at once, because it has another
// certificate.
func (s *Set) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.retried)
	s.retried = make(chan struct{})
}

// Listener yields the connections of Runners, of all tunnels. It is as a Tunnel's.
func (s *Set) Listener() net.Listener { return s.listener }

// Public yields the streams of public traffic, of all tunnels. It is as a Tunnel's.
func (s *Set) Public() net.Listener { return s.public }

// Changed returns a channel that is closed at the next change of Status. Take it before
// reading Status so that no change is missed.
func (s *Set) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

// Status returns how the tunnels are.
func (s *Set) Status() SetStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := SetStatus{Returns: s.returns, Phase: Stopped}
	for _, e := range s.wanted {
		node := NodeStatus{Endpoint: e, Status: Status{Phase: Stopped, Since: s.since}, Wanted: true}
		if m := s.find(e); m != nil {
			node.Status = m.Status()
		}
		status.Nodes = append(status.Nodes, node)
	}
	for _, m := range s.members {
		if !m.leaving && !slices.Contains(s.wanted, m.at) {
			status.Nodes = append(status.Nodes, NodeStatus{Endpoint: m.at, Status: m.Status()})
		}
	}
	for i, node := range status.Nodes {
		if i == 0 || node.Phase == Connected {
			status.Phase = node.Phase
		}
	}
	return status
}

// Up returns how many tunnels are up, and how many are wanted.
func (s SetStatus) Up() (up, wanted int) {
	for _, n := range s.Nodes {
		if n.Phase == Connected {
			up++
		}
		if n.Wanted {
			wanted++
		}
	}
	return min(up, wanted), wanted
}

// Drain returns a Tunnel's, of all tunnels at once. No other ones are made from then on.
func (s *Set) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.attempt.end()
	members := slices.Clone(s.members)
	s.mu.Unlock()
	errs := make([]error, len(members))
	var draining sync.WaitGroup
	for i, m := range members {
		draining.Go(func() { errs[i] = m.Drain(ctx) })
	}
	draining.Wait()
	return errors.Join(errs...)
}

// find returns the tunnel to an endpoint that is not being left. The lock is held.
func (s *Set) find(e Endpoint) *member {
	for _, m := range s.members {
		if m.at == e && !m.leaving {
			return m
		}
	}
	return nil
}

// changed is called at each change of a tunnel's status.
func (s *Set) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changedLocked()
}

func (s *Set) changedLocked() {
	up := slices.ContainsFunc(s.members, func(m *member) bool { return !m.leaving && m.isUp() })
	if up != s.up {
		s.up, s.since = up, time.Now()
		if up {
			s.returns++
		} else if !s.draining {
			s.attempt = newAttempt(nextPatience)
		}
	}
	if s.settled() {
		s.attempt.end()
	}
	close(s.next)
	s.next = make(chan struct{})
	s.look.Raise()
}
