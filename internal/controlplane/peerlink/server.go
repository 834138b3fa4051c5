package peerlink

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// Handover gives a connection to an agent's tunnel, which owns it from then on. On an error the
// caller still owns it.
type Handover func(ctx context.Context, agentID string, conn net.Conn) error

// ServerConfig configures a Server.
type ServerConfig struct {
	TrustDomain string
	// TLS returns the current certificate and ClientCAs.
	TLS func() (*tls.Config, error)
	// GatewayTLS is that for gateways, of Gateways.ForPeer; nil if there are none.
	GatewayTLS func() (*tls.Config, error)
	Handover   Handover
	// Public gives a connection of the kind Public to an agent's tunnel.
	Public Handover
	// Report returns what this control plane reports of itself; nil if it reports nothing.
	Report func(ctx context.Context) Replica
	Log    zerolog.Logger
}

// The limits of a Server.
const (
	maxHandshakes = 4096 // connections whose agent is not known yet
	// Connections that wait for an agent, in total and per agent.
	maxPending, maxPendingPerAgent = 4096, 512
	// requestTimeout bounds the handshake and the request, handoverTimeout the time to reach the
	// agent, as on the edge.
	requestTimeout  = 5 * time.Second
	handoverTimeout = 10 * time.Second
)

// Server accepts connections from other control planes.
type Server struct {
	cfg     ServerConfig
	room    *limit.Room
	pending *limit.Shares
}

// NewServer returns a Server.
func NewServer(cfg ServerConfig) *Server {
	return &Server{cfg: cfg, room: limit.NewRoom(maxHandshakes), pending: limit.NewShares(maxPending, maxPendingPerAgent)}
}

// Serve accepts connections until the context ends. It then closes the listener and returns once no
// handover is in progress.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	failed := func(err error) {
		s.cfg.Log.Warn().Err(err).Msg("failed to accept a connection of another control plane")
	}
	return limit.Accept(ctx, ln, failed, func(conn net.Conn) func() {
		leave := s.room.Enter(conn)
		return func() { s.take(ctx, conn, leave) }
	})
}

// take hands a connection over or closes it.
func (s *Server) take(ctx context.Context, raw net.Conn, leave func()) {
	conn, r, err := s.greet(ctx, raw)
	leave()
	if err != nil {
		_ = raw.Close()
		s.cfg.Log.Debug().Err(err).Str("peer", raw.RemoteAddr().String()).Msg("not a connection of another control plane")
		return
	}
	done, ok := s.pending.Enter(r.agentID)
	if !ok {
		refuse(conn, statusBusy)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	if r.kind == Report {
		s.report(ctx, conn)
		return
	}
	arrived := &arriving{Conn: conn, from: net.TCPAddrFromAddrPort(r.from)}
	handover := s.cfg.Handover
	if r.kind == Public {
		handover = s.cfg.Public
	}
	if err := handover(ctx, r.agentID, arrived); err != nil {
		refuse(conn, statusOf(err))
		s.cfg.Log.Debug().Err(err).Str("agent", r.agentID).Msg("failed to reach an agent for another control plane")
	}
}

// greet authenticates the other control plane and reads its request.
func (s *Server) greet(ctx context.Context, raw net.Conn) (*tls.Conn, request, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	unblock := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	conn := tls.Server(raw, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: s.config})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, request{}, err
	}
	r, err := readRequest(conn)
	if err == nil && r.kind != Public && conn.ConnectionState().NegotiatedProtocol == gatewayALPN {
		err = errPublicOnly
	}
	if err == nil && !unblock() {
		err = ctx.Err() // the deadline is being set at this moment
	}
	if err != nil {
		return nil, request{}, err
	}
	return conn, r, nil
}

func (s *Server) config(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if s.cfg.GatewayTLS != nil && slices.Contains(hello.SupportedProtos, gatewayALPN) {
		return s.gatewayConfig()
	}
	cfg, err := s.cfg.TLS()
	if err != nil {
		return nil, err
	}
	cfg.MinVersion, cfg.NextProtos = tls.VersionTLS13, []string{alpn}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	cfg.SessionTicketsDisabled = true // a session would outlive a rotation of the CA
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if cs.NegotiatedProtocol != alpn {
			return errors.New("it does not speak " + alpn)
		}
		_, err := nodeOf(cs, s.cfg.TrustDomain)
		return err
	}
	return cfg, nil
}

// gatewayConfig is for gateways, whose certificates no CA has signed.
func (s *Server) gatewayConfig() (*tls.Config, error) {
	cfg, err := s.cfg.GatewayTLS()
	if err != nil {
		return nil, err
	}
	cfg.ClientAuth, cfg.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true
	return cfg, nil
}

func statusOf(err error) byte {
	switch {
	case errors.Is(err, server.ErrNotConnected):
		return statusNotConnected
	case errors.Is(err, server.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		return statusBusy
	}
	return statusFailed
}

func refuse(conn *tls.Conn, status byte) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte{status})
	_ = conn.Close()
}

// arriving is a Runner's connection that another control plane has handed over. The first use
// accepts it, and reports that to the other control plane first.
type arriving struct {
	*tls.Conn
	from net.Addr
	told sync.Once
	err  error
}

// RemoteAddr returns the Runner's address.
func (a *arriving) RemoteAddr() net.Addr { return a.from }

func (a *arriving) Read(p []byte) (int, error) {
	if err := a.taken(); err != nil {
		return 0, err
	}
	return a.Conn.Read(p)
}

func (a *arriving) Write(p []byte) (int, error) {
	if err := a.taken(); err != nil {
		return 0, err
	}
	return a.Conn.Write(p)
}

func (a *arriving) taken() error {
	a.told.Do(func() { _, a.err = a.Conn.Write([]byte{statusTaken}) })
	return a.err
}
