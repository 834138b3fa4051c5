package controlplane

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
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const (
	// nudgesAtATime bounds how many agents get a refresh request at the same time.
	nudgesAtATime = 64
	// nudgeSpread is the time over which refresh requests to many agents are spread, and nudgeEach
	// the share of one agent: a few agents get theirs at once.
	nudgeSpread = 2 * time.Second
	nudgeEach   = time.Millisecond
	// nudgeTries is how often an agent that does not respond gets a refresh request. It still has
	// its heartbeats.
	nudgeTries = 3
	nudgePause = time.Second
	// nudgerTTL is the lifetime of the certificate for refresh requests.
	nudgerTTL = 10 * time.Minute
)

// nudger makes connected agents request their news when there are some. Other agents request them
// when they connect, before they serve.
type nudger struct {
	store       *store.Store
	ca          *ca.CA
	tunnel      *server.Server
	directory   directory
	trustDomain string
	now         func() time.Time
	log         zerolog.Logger
	// The result of each refresh request is reported here; the function may be nil.
	nudged func(result string)

	wake chan struct{}
	all  atomic.Bool // there are news for all
	last int64       // news up to this number have been heard; only run uses it once it runs

	mu      sync.Mutex
	cert    *tls.Certificate
	renewAt time.Time
}

// look makes run check soon for news.
func (n *nudger) look() {
	select {
	case n.wake <- struct{}{}:
	default: // a check is already scheduled
	}
}

// lookAtAll makes all agents that are connected here request their news soon.
func (n *nudger) lookAtAll() {
	n.all.Store(true)
	n.look()
}

// begin is called before agents can connect: agents get earlier news when they connect.
func (n *nudger) begin(ctx context.Context) (err error) {
	n.last, err = n.store.LastNews(ctx)
	return err
}

// run sends refresh requests until the context ends.
func (n *nudger) run(ctx context.Context) error {
	var nudging sync.WaitGroup
	defer nudging.Wait()
	places := make(chan struct{}, nudgesAtATime)
	for {
		agents, err := n.news(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.log.Error().Err(err).Msg("cannot read what agents are to be told; trying again")
			retry.Wait(ctx, nudgePause)
			continue
		}
		if len(agents) > 0 {
			n.log.Info().Int("agents", len(agents)).Msg("agents are asked to hear their news")
		}
		spread := min(nudgeSpread, time.Duration(len(agents))*nudgeEach)
		for _, id := range agents {
			nudging.Go(func() { n.nudge(ctx, id, spread, places) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		}
	}
}

// news returns the connected agents that have had news since the last call.
func (n *nudger) news(ctx context.Context) (agents []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	list, err := n.store.NewsAfter(ctx, n.last)
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

// It makes all replicas of an agent request their news.
func (n *nudger) nudge(ctx context.Context, agentID string, spread time.Duration, places chan struct{}) {
	if spread > 0 {
		retry.Wait(ctx, rand.N(spread)) //nolint:gosec // spreading load needs no secrecy
	}
	result := nudgeUnheard
	if n.nudged != nil {
		defer func() { n.nudged(result) }()
	}
	for try := 1; try <= nudgeTries; try++ {
		select {
		case <-ctx.Done():
			return
		case places <- struct{}{}:
		}
		err := n.tunnel.DialEach(ctx, agentID, func(ctx context.Context, conn net.Conn) error { return n.once(ctx, agentID, conn) })
		<-places
		if err == nil {
			result = nudgeHeard
		}
		if err == nil || ctx.Err() != nil || !n.tunnel.Connected(agentID) {
			return
		}
		n.log.Warn().Err(err).Str("agent", agentID).Int("try", try).Msg("agent could not be nudged; its next heartbeat tells it")
		retry.Wait(ctx, nudgePause)
	}
}

func (n *nudger) once(ctx context.Context, agentID string, conn net.Conn) error {
	return runnerapi.Nudge(ctx, conn, runnerapi.ClientTLSConfig{
		Certificate: n.certificate, Roots: n.ca.Pool(), TrustDomain: n.trustDomain,
		AgentID: agentID, ServerName: n.directory.serverName(agentID),
	})
}

// certificate returns the control plane's client certificate, which is valid for refresh requests
// only.
func (n *nudger) certificate() (*tls.Certificate, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	if n.cert != nil && now.Before(n.renewAt) {
		return n.cert, nil
	}
	cert, err := n.ca.ControlPlane(runnerapi.ControlPlaneURI(n.trustDomain), nudgerTTL)
	if err != nil {
		return nil, err
	}
	n.cert, n.renewAt = cert, now.Add(nudgerTTL/2)
	return cert, nil
}
