// Package server is the control plane's end of the FRP tunnel (wire 2). It accepts agents on our
// TLS listener, and binds each FRP session to the agent that its client certificate names. It makes
// connections to agents inside the process, without a port per agent. The FRP protocol itself is
// frps', embedded without its listeners.
//
// Config.Identify and Config.Authorize decide who may be an agent. The package does not handle what
// runs on the connections, which carry ciphertext between a Runner and an agent.
// docs/adr/0002-frp-session-binding.md has the reasons for this design.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

var (
	// ErrNotConnected means that the agent has no tunnel here at present.
	ErrNotConnected = errors.New("agent is not connected; try again when it is announced online")
	// ErrBusy means that the agent did not take the connection in time, or that too many
	// others wait for it already.
	ErrBusy = errors.New("agent is busy; try again shortly")
	// ErrRevoked is returned by Authorize (wrapped or not) for an agent that will not be admitted
	// again, revoked or unknown. The agent receives that and stops trying.
	ErrRevoked = errors.New("agent is revoked")
)

// Server accepts agents and connects to them. New returns one.
type Server struct {
	cfg    Config
	tls    *tls.Config
	proofs *tls.Config // inside sessions
	engine *engine
	agents *agents
	wait   *limit.Room
	turns  *limit.Turns
	login  *limit.Shares // by agent
	calls  *limit.Shares // by agent
	told   rate.Sometimes
	counts counters
}

// counters are the totals behind Stats.
type counters struct {
	accepted, refused, dials, dialErrors atomic.Uint64
	logins                               atomic.Uint64
	toAgents, fromAgents                 atomic.Uint64
	dialing, relays, sessions            atomic.Int64
}

// New checks the configuration. Nothing runs before Serve.
func New(cfg Config) (*Server, error) {
	if cfg.Identify == nil {
		return nil, errors.New("tunnel server: no Identify; it must read the agent's ID from its certificate")
	}
	secure, err := cfg.tlsConfig()
	if err == nil {
		secure = inTurn(secure)
	}
	if err != nil {
		return nil, err
	}
	proofs, err := cfg.proofTLS()
	if err != nil {
		return nil, err
	}
	if cfg.Authorize == nil && cfg.Admit == nil {
		return nil, errors.New("tunnel server: no Authorize and no Admit; one of them must decide which agents may connect")
	}
	if cfg.Authorize == nil {
		cfg.Authorize = func(context.Context, string) error { return nil }
	}
	if cfg.Admit == nil {
		cfg.Admit = func(context.Context, string, Login) error { return nil }
	}
	cfg.Limits = cfg.Limits.withDefaults()
	link.RedirectFRPLog(cfg.Log)
	engine, err := newEngine()
	if err != nil {
		return nil, err
	}
	return &Server{
		cfg:    cfg,
		tls:    secure,
		proofs: proofs,
		engine: engine,
		agents: newAgents(cfg.OnUp, cfg.OnDown, cfg.Limits.Instances),
		wait:   limit.NewRoom(cfg.Limits.Handshakes),
		turns:  limit.NewTurns(turnPatience),
		login:  limit.NewShares(math.MaxInt, cfg.Limits.Logins),
		calls:  limit.NewShares(cfg.Limits.CallsTotal, cfg.Limits.Calls),
		told:   limit.Seldom(),
	}, nil
}

// Serve accepts agents on ln, which carries plain TCP (TLS is done here), until ctx ends;
// it then closes every session and returns when all of its goroutines have ended. It
// closes ln, and may be called for several listeners at a time.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()

	var connections sync.WaitGroup
	err := s.acceptAll(ctx, ln, func(conn net.Conn) {
		place := s.wait.Take(conn) // here, so that the line is in the order of arrival
		connections.Go(func() { s.handle(ctx, conn, place) })
	})
	if ctx.Err() != nil {
		err = nil // it was asked for
	}
	cancel()
	connections.Wait()
	return err
}

// Connected reports whether the agent can be reached.
func (s *Server) Connected(agentID string) bool { return s.agents.isOnline(agentID) }

// Disconnect closes the agent's sessions and every connection through them at once. It
// does not keep the agent out: Authorize must refuse it from before this call.
func (s *Server) Disconnect(agentID string) {
	for _, session := range s.agents.sessions(agentID) {
		session.kill(errDisconnected)
	}
}

// Agents lists the agents that can be reached, sorted.
func (s *Server) Agents() []string { return s.agents.list() }

// Held lists the agents that have a session, sorted: also one that logs in, or that drains and
// still carries connections.
func (s *Server) Held() []string { return s.agents.held() }

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	online, sessions := s.agents.count()
	return Stats{
		Agents:          online,
		Sessions:        sessions,
		Handshakes:      s.wait.Len(),
		Dials:           int(s.counts.dialing.Load()),
		Connections:     int(s.counts.relays.Load()),
		Calls:           s.calls.Taken(),
		Accepted:        s.counts.accepted.Load(),
		Refused:         s.counts.refused.Load(),
		Logins:          s.counts.logins.Load(),
		DialsTotal:      s.counts.dials.Load(),
		DialErrors:      s.counts.dialErrors.Load(),
		BytesToAgents:   s.counts.toAgents.Load(),
		BytesFromAgents: s.counts.fromAgents.Load(),
	}
}
