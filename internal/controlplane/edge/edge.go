// Package edge is the one port at which Runners reach all agents. It reads from SNI which agent a
// TLS connection is for, and hands the connection, still encrypted, to that agent's tunnel. It
// holds no certificate and sees no plain text; the agent decides who may command it.
package edge

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/sni"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// Handover gives a connection to an agent's tunnel, which owns it from then on. On an error the
// caller still owns it.
type Handover func(ctx context.Context, agentID string, conn net.Conn) error

// Config configures an Edge. Domain and Handover are required.
type Config struct {
	// Domain is what follows the agent's ID in the names: AGENT_ID.DOMAIN.
	Domain   string
	Handover Handover
	Log      zerolog.Logger
	// Hellos is how many connections may be open whose agent is not known yet (4096). Beyond that,
	// the one that has waited longest is closed.
	Hellos int
	// Pending is how many connections may wait for an agent to accept them (4096), and
	// PendingPerAgent how many of them for the same agent (512). So agents that do not respond do
	// not block the others. More connections are refused.
	Pending, PendingPerAgent int
	// HelloTimeout bounds how long a caller may take to name its agent (5 s).
	HelloTimeout time.Duration
	// HandoverTimeout bounds the time to reach the agent (10 s).
	HandoverTimeout time.Duration
}

// Edge routes connections. Its listener is given to Serve.
type Edge struct {
	cfg     Config
	hellos  *limit.Room
	pending *limit.Shares // by agent
}

// New returns an Edge.
func New(cfg Config) *Edge {
	cfg.Hellos = cmp.Or(cfg.Hellos, 4096)
	cfg.Pending = cmp.Or(cfg.Pending, 4096)
	cfg.PendingPerAgent = cmp.Or(cfg.PendingPerAgent, 512)
	cfg.HelloTimeout = cmp.Or(cfg.HelloTimeout, 5*time.Second)
	cfg.HandoverTimeout = cmp.Or(cfg.HandoverTimeout, 10*time.Second)
	return &Edge{cfg: cfg, hellos: limit.NewRoom(cfg.Hellos), pending: limit.NewShares(cfg.Pending, cfg.PendingPerAgent)}
}

// The TLS alerts (RFC 8446, section 6) that report an error to callers.
const (
	alertInternal         = 80
	alertUnrecognizedName = 112
)

// Serve accepts connections until the context ends. It then closes the listener and returns once no
// handover is in progress.
func (e *Edge) Serve(ctx context.Context, ln net.Listener) error {
	failed := func(err error) { e.cfg.Log.Warn().Err(err).Msg("edge: failed to accept a connection") }
	return limit.Accept(ctx, ln, failed, func(conn net.Conn) func() {
		heard := e.hellos.Enter(conn) // here, so that the line is in the order of arrival
		return func() { e.route(ctx, conn, heard) }
	})
}

// route hands a connection over or closes it. It calls heard once it knows the connection's agent.
func (e *Edge) route(ctx context.Context, conn net.Conn, heard func()) {
	log := e.cfg.Log.With().Str("peer", conn.RemoteAddr().String()).Logger()
	unblock := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	_ = conn.SetDeadline(time.Now().Add(e.cfg.HelloTimeout))
	name, hello, err := sni.Peek(conn)
	heard()
	if err != nil {
		unblock()
		if errors.Is(err, sni.ErrNoName) {
			refuse(conn, alertUnrecognizedName)
		}
		_ = conn.Close()
		log.Debug().Err(err).Msg("edge: not a TLS connection for an agent")
		return
	}
	agentID, ok := agentOf(name, e.cfg.Domain)
	if !ok {
		unblock()
		refuse(conn, alertUnrecognizedName)
		log.Debug().Msg("edge: unknown agent in SNI")
		return
	}
	if !unblock() { // the deadline is being set at this moment
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	leave, ok := e.pending.Enter(agentID)
	if !ok {
		refuse(conn, alertInternal)
		log.Debug().Str("agent", agentID).Msg("edge: too many connections wait for the agent")
		return
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.HandoverTimeout)
	defer cancel()
	if err := e.cfg.Handover(ctx, agentID, sni.Replay(conn, hello)); err != nil {
		alert := byte(alertInternal)
		if errors.Is(err, server.ErrNotConnected) {
			alert = alertUnrecognizedName
		}
		refuse(conn, alert)
		log.Debug().Err(err).Str("agent", agentID).Msg("edge: failed to reach the agent")
	}
}

// agentOf returns the agent's ID in AGENT_ID.DOMAIN, or in the agent's name for the Kubernetes API.
func agentOf(name, domain string) (string, bool) {
	name = strings.TrimPrefix(strings.ToLower(name), runnerapi.KubernetesServerPrefix)
	id, rest, ok := strings.Cut(name, ".")
	return id, ok && id != "" && rest == strings.ToLower(domain)
}

// refuse sends a fatal TLS alert, which a client reports better than a closed connection, and
// closes the connection.
func refuse(conn net.Conn, alert byte) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte{21, 3, 3, 0, 2, 2, alert})
	_ = conn.Close()
}
