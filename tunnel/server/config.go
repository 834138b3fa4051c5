package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Config configures a Server. Identify, a certificate, and Authorize or Admit are required.
type Config struct {
	// TLS holds the server's certificate and the agents' CA (ClientCAs), or a GetConfigForClient
	// that returns both and may rotate them. A verified client certificate is always required,
	// regardless of ClientAuth.
	TLS *tls.Config
	// Identify returns the agent's ID from a verified client certificate.
	Identify func(tls.ConnectionState) (agentID string, err error)
	// Authorize decides whether the agent may connect. It returns nil to admit it, ErrRevoked to
	// refuse it for good, and any other error to refuse it for now. If it is nil,
	// Admit decides alone.
	Authorize func(ctx context.Context, agentID string) error
	// Admit decides whether this replica of an authorized agent may connect, by its own statement.
	// It returns nil to admit it, a *RefusalError to refuse it for good, and any other error to
	// refuse it for now. It is called before the login takes anything over. If it is nil,
	// Authorize decides alone.
	Admit func(ctx context.Context, agentID string, login Login) error
	// OnUp is called when the agent becomes reachable, and OnDown when none of its replicas is
	// reachable any more. For one agent they are called in order and one at a time. A second
	// replica, or a takeover by a new connection of the same one, causes neither. They may call the
	// Server.
	OnUp, OnDown func(agentID string)
	// Calls receives the streams on which agents call the control plane's API, in a session that is
	// logged in: HTTP/1.1 without TLS of its own. proven is the session's TLS state, with the
	// agent's certificate, and the connection's remote address is the agent's. The function must
	// not block. It closes the connection when the call is over, and bounds how long that takes. If
	// it is nil, there are no calls.
	Calls func(conn net.Conn, proven tls.ConnectionState)
	// Log receives the server's log and, through it, frp's.
	Log zerolog.Logger
	// Limits bound what agents and unauthenticated peers can use; zero values select the defaults.
	Limits Limits
}

// Login is what a replica states about itself when it connects. It proves nothing.
type Login struct {
	// Instance is its name; Cluster is the UID of its cluster, empty while that is unknown.
	Instance, Cluster string
	// Address is the host from which it connects.
	Address string
}

// RefusalError refuses a replica for good. The agent receives the reason.
type RefusalError struct{ Reason string }

// Error implements error.
func (r *RefusalError) Error() string { return r.Reason }

// Limits bound what agents and unauthenticated peers can use.
type Limits struct {
	// Handshakes is how many connections may be without a session yet at a time (16384). Beyond
	// that, the one that has waited longest is closed.
	Handshakes int
	// HandshakeTimeout bounds the TLS handshake and FRP's login (10 s).
	HandshakeTimeout time.Duration
	// Busy is how many connections may be between their TLS handshake and the end of their login
	// (2048). Beyond that, agents are asked to return later.
	Busy int
	// Instances is how many replicas of one agent may be connected (8). One more is refused until
	// another has gone.
	Instances int
	// Logins is how many connections of one agent may be between their TLS handshake and the end of
	// their login (32). One more is closed.
	Logins int
	// Streams is how many streams one replica of an agent may have open (4096), beside those of
	// public traffic. A session with more is closed.
	Streams int
	// Public is how many streams of public traffic one replica may have open (2048).
	Public int
	// PublicDrain is how long streams of public traffic may go on when the server stops (10 s).
	PublicDrain time.Duration
	// Calls is how many calls of one agent may be open (32), and CallsTotal of all agents (16384).
	// The stream of one more is closed.
	Calls, CallsTotal int
	// CallsDrain is how long open calls may go on when the server stops (5 s). After that the agent
	// is informed that the server stops.
	CallsDrain time.Duration
	// Dials is how many connections to one replica may be in progress at a time (64); frp silently
	// drops some beyond 128. More wait for their turn.
	Dials int
	// DialTimeout bounds one dial, including its wait (10 s), if its context does not.
	DialTimeout time.Duration
	// HedgeAfter is how long a dial waits for one replica before it tries another as well (0.5 s).
	// That is longer than a round trip to anywhere, and shorter than a person notices. A replica
	// whose connection is dead and not yet detected costs the first dial this much.
	HedgeAfter time.Duration
	// GoAway is how long a server that stops waits for an agent to hang up (0.5 s).
	GoAway time.Duration
}

// Stats are counts for metrics.
type Stats struct {
	// Agents are those that can be reached now; Sessions includes those that are still logging in.
	Agents, Sessions int
	// Handshakes are the connections without a session yet.
	Handshakes int
	// Dials are in progress; Connections are handed over and open.
	Dials, Connections int
	// Calls are the API calls that are open in sessions.
	Calls int
	// The totals since the start.
	Accepted, Refused, DialsTotal, DialErrors uint64
	// Logins are sessions that were begun. Refused are connections before that.
	Logins uint64
	// BytesToAgents and BytesFromAgents were copied for handed over connections.
	BytesToAgents, BytesFromAgents uint64
}

func (l Limits) withDefaults() Limits {
	l.Handshakes = cmp.Or(l.Handshakes, 16384)
	l.HandshakeTimeout = cmp.Or(l.HandshakeTimeout, 10*time.Second)
	l.Busy = cmp.Or(l.Busy, 2048)
	l.Instances = cmp.Or(l.Instances, 8)
	l.Logins = cmp.Or(l.Logins, 32)
	l.Streams = cmp.Or(l.Streams, 4096)
	l.Public = cmp.Or(l.Public, 2048)
	l.PublicDrain = cmp.Or(l.PublicDrain, 10*time.Second)
	l.Calls = cmp.Or(l.Calls, 32)
	l.CallsTotal = cmp.Or(l.CallsTotal, 16384)
	l.CallsDrain = cmp.Or(l.CallsDrain, 5*time.Second)
	l.Dials = cmp.Or(l.Dials, 64)
	l.DialTimeout = cmp.Or(l.DialTimeout, 10*time.Second)
	l.HedgeAfter = cmp.Or(l.HedgeAfter, 500*time.Millisecond)
	l.GoAway = cmp.Or(l.GoAway, 500*time.Millisecond)
	return l
}

// tlsConfig returns the configuration and enforces what the binding of sessions relies on: a client
// certificate, verified against the agents' CA and not against the system's roots.
func (c Config) tlsConfig() (*tls.Config, error) {
	return c.enforced(func(cfg *tls.Config) {
		if len(cfg.NextProtos) == 0 {
			cfg.NextProtos = []string{link.ALPN}
		}
	})
}

// proofTLS returns the same for proofs inside a session. Sessions are not resumed there, because a
// key must be proven.
func (c Config) proofTLS() (*tls.Config, error) {
	return c.enforced(func(cfg *tls.Config) {
		cfg.NextProtos, cfg.SessionTicketsDisabled = []string{link.ALPNProof}, true
	})
}

func (c Config) enforced(change func(*tls.Config)) (*tls.Config, error) {
	if c.TLS == nil {
		return nil, errors.New("tunnel server: no TLS configuration; the tunnel only runs over mutual TLS")
	}
	cfg := c.TLS.Clone()
	if choose := cfg.GetConfigForClient; choose != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil {
				return nil, err
			}
			if chosen == nil {
				chosen = c.TLS
			}
			return enforce(chosen.Clone(), change)
		}
		return cfg, nil
	}
	return enforce(cfg, change)
}

func enforce(cfg *tls.Config, change func(*tls.Config)) (*tls.Config, error) {
	if cfg.ClientCAs == nil {
		return nil, errors.New("tunnel server: no ClientCAs; give the CA that signs the agents' certificates")
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.MinVersion = tls.VersionTLS13
	cfg.DynamicRecordSizingDisabled = true // writes are batched, so small records only cost
	change(cfg)
	return cfg, nil
}
