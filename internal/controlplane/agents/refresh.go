package agents

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const (
	// DefaultRefreshes is how many agents get a refresh request at the same time.
	DefaultRefreshes = 64
	// refreshSpread is the time over which refresh requests to many agents are spread, and
	// refreshEach the share of one agent: a few agents get theirs at once.
	refreshSpread = 2 * time.Second
	refreshEach   = time.Millisecond
	// RefreshTries is how often an agent that does not respond gets a refresh request. It still has
	// its heartbeats.
	RefreshTries = 3
	refreshPause = time.Second
	// refresherTTL is the lifetime of the certificate for refresh requests.
	refresherTTL = 10 * time.Minute
)

// Refresher makes connected agents request their news when there are some. Other agents request
// them when they connect, before they serve.
type Refresher struct {
	store       *store.Store
	ca          *ca.CA
	tunnel      *server.Server
	directory   discovery.Directory
	trustDomain string
	now         func() time.Time
	shared      bool // with other control planes
	atATime     int
	log         zerolog.Logger
	// refreshed is called with the result of each refresh request; it may be nil.
	refreshed func(result string)

	wake wake.Signal
	all  atomic.Bool // there are news for all
	last int64       // news up to this number have been heard; only run uses it once it runs

	mu      sync.Mutex
	cert    *tls.Certificate
	renewAt time.Time
}

// RefresherConfig is what refresh requests need.
type RefresherConfig struct {
	TrustDomain string
	// Shared is set if other control planes serve the same database.
	Shared bool
	// AtATime is how many agents get a refresh request at the same time.
	AtATime int
	// Refreshed is called with the result of each refresh request; it may be nil.
	Refreshed func(result string)
	Log       zerolog.Logger
	Now       func() time.Time
}

// NewRefresher returns what sends refresh requests through the tunnels here.
func NewRefresher(s *store.Store, authority *ca.CA, tunnels *server.Server, d discovery.Directory, cfg RefresherConfig) *Refresher {
	return &Refresher{
		store: s, ca: authority, tunnel: tunnels, directory: d, trustDomain: cfg.TrustDomain, shared: cfg.Shared, atATime: cfg.AtATime,
		refreshed: cfg.Refreshed, now: cfg.Now, log: cfg.Log, wake: wake.New(),
	}
}

// Look makes run check soon for news.
func (n *Refresher) Look() {
	n.wake.Raise()
}

// lookAtAll makes all agents that are connected here request their news soon.
func (n *Refresher) lookAtAll() {
	n.all.Store(true)
	n.Look()
}

// Begin is called before agents can connect: agents get earlier news when they connect.
func (n *Refresher) Begin(ctx context.Context) (err error) {
	n.last, err = n.store.LastRefresh(ctx)
	return err
}

// Run sends refresh requests until the context ends.
func (n *Refresher) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, n.atATime)
	for {
		agents, err := n.news(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.log.Error().Err(err).Msg("failed to read the updates for agents; retrying")
			retry.Wait(ctx, refreshPause)
			continue
		}
		if len(agents) > 0 {
			n.log.Debug().Int("agents", len(agents)).Msg("sending refresh requests to agents")
		}
		spread := min(refreshSpread, time.Duration(len(agents))*refreshEach)
		for _, id := range agents {
			running.Go(func() { n.refresh(ctx, id, spread, places) })
		}
		if !n.wake.Wait(ctx) {
			return nil
		}
	}
}

// news returns the connected agents that have had news since the last call.
func (n *Refresher) news(ctx context.Context) (agents []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	list, err := n.store.RefreshesAfter(ctx, n.last)
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		n.last = list[len(list)-1].Number
	}
	if n.all.Swap(false) {
		return n.tunnel.Agents(), nil
	}
	for _, e := range list {
		switch {
		case e.AgentID == store.EveryAgent:
			return n.tunnel.Agents(), nil
		case n.tunnel.Connected(e.AgentID):
			agents = append(agents, e.AgentID)
		}
	}
	return agents, nil
}

// refresh makes all replicas of an agent request their news.
func (n *Refresher) refresh(ctx context.Context, agentID string, spread time.Duration, places chan struct{}) {
	if spread > 0 {
		retry.Wait(ctx, rand.N(spread)) //nolint:gosec // spreading load needs no secrecy
	}
	result := RefreshUnheard
	if n.refreshed != nil {
		defer func() { n.refreshed(result) }()
	}
	for try := 1; try <= RefreshTries; try++ {
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		err := n.tunnel.DialEach(ctx, agentID, func(ctx context.Context, conn net.Conn) error { return n.once(ctx, agentID, conn) })
		<-places
		if err == nil {
			result = RefreshHeard
		}
		if err == nil || ctx.Err() != nil || !n.tunnel.Connected(agentID) {
			return
		}
		n.log.Warn().Err(err).Str("agent", agentID).Int("try", try).Msg("failed to send a refresh request to an agent; its next heartbeat brings the updates")
		retry.Wait(ctx, refreshPause)
	}
}

func (n *Refresher) once(ctx context.Context, agentID string, conn net.Conn) error {
	return client.Refresh(ctx, conn, client.TLSConfig{
		Certificate: n.certificate, Roots: n.ca.Pool(), TrustDomain: n.trustDomain,
		AgentID: agentID, ServerName: n.directory.ServerName(agentID),
	})
}

// certificate returns the control plane's client certificate, which is valid for refresh requests
// only.
func (n *Refresher) certificate() (*tls.Certificate, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if n.cert != nil && now.Before(n.renewAt) {
		return n.cert, nil
	}
	cert, err := n.ca.ControlPlane(credentials.ControlPlaneURI(n.trustDomain), refresherTTL)
	if err != nil {
		return nil, err
	}
	n.cert, n.renewAt = cert, now.Add(refresherTTL/2)
	return cert, nil
}

// tellAfter is how long the other control planes have to learn of a change before agents ask one of
// them.
const tellAfter = time.Second

// TellAll makes connected agents learn of a change now. All others learn of it with their next
// heartbeat.
func (n *Refresher) TellAll(ctx context.Context) {
	if n.shared { // each control plane informs the agents that are connected to it
		retry.Wait(ctx, tellAfter)
		n.lookAtAll()
		return
	}
	err := n.store.Update(ctx, func(tx *store.Tx) error { return tx.RequestRefresh(ctx, store.EveryAgent) })
	if err != nil {
		n.log.Warn().Err(err).Msg("failed to send refresh requests to agents; their next heartbeats bring the updates")
		return
	}
	n.Look()
}

// The results of a refresh request.
const (
	RefreshHeard   = "heard"
	RefreshUnheard = "unheard" // the agent gets its news with its next heartbeat
)
