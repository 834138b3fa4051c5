package server

import (
	"context"
	"crypto/tls"
	"net/http"

	"github.com/coder/websocket"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// WebsocketPath is where agents that cannot reach the tunnel's port request a WebSocket.
const WebsocketPath = link.WebsocketPath

// Websockets manages the sessions of agents that come over HTTPS. The limits of the listener's
// sessions apply to them.
type Websockets struct {
	server   *Server
	ctx      context.Context // the sessions', which outlive their requests
	sessions link.Gate
}

// Websockets accepts sessions until ctx ends, which also ends them.
func (s *Server) Websockets(ctx context.Context) *Websockets {
	return &Websockets{server: s, ctx: ctx}
}

// Serve starts a session for a request whose client certificate was verified and is the agent's. It
// returns as soon as the session exists; the session continues by itself.
func (u *Websockets) Serve(w http.ResponseWriter, r *http.Request, agentID string) {
	if u.ctx.Err() != nil {
		problem.Write(w, "", problem.Errorf(problem.Unavailable, "try again shortly", "the control plane is stopping"))
		return
	}
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{link.Subprotocol}, CompressionMode: websocket.CompressionDisabled, // it is ciphertext
	})
	if err != nil { // the library has answered
		u.server.counts.refused.Add(1)
		u.server.cfg.Log.Debug().Err(err).Str("remote", r.RemoteAddr).Msg("tunnel over a WebSocket refused")
		return
	}
	conn := link.NewWebsocket(socket)
	secure := r.TLS // keeps the TLS state and not the request
	proven := func() tls.ConnectionState { return *secure }
	if socket.Subprotocol() == "" || !u.sessions.Go(func() {
		defer func() { _ = conn.Close() }()
		u.server.counts.accepted.Add(1)
		newSession(u.server, conn, conn, nil, agentID, proven).serve(u.ctx)
	}) {
		u.server.counts.refused.Add(1)
		_ = conn.Close()
	}
}

// Wait returns once the context and all sessions have ended.
func (u *Websockets) Wait() { u.sessions.Shut() }
