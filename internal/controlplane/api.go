package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// drainTimeout is how long calls that are under way may take when we stop.
const drainTimeout = 10 * time.Second

// idleTimeout ends connections that are not in use: thousands of agents beat every half
// minute each, and what a connection keeps in memory meanwhile is a third of an agent. Theirs
// come again with a session ticket, which costs a third of a handshake.
const idleTimeout = 15 * time.Second

// maxHeader bounds a request's header.
const maxHeader = 32 << 10

// agentsAPI returns the handler of the calls of agents, over either transport.
func (c *ControlPlane) agentsAPI() http.Handler {
	return withCall(controlapi.NewHandler(controlapi.HandlerConfig{
		Backend: c.registry, Identify: c.peers.agentOfRequest, Version: c.cfg.Version, Log: c.cfg.Log,
	}))
}

// handler returns the handler of the HTTPS port.
func (c *ControlPlane) handler(sockets *server.Websockets) http.Handler {
	logged := func(h http.Handler) http.Handler {
		return problem.WithRequestID(controlapi.LogRequests(c.cfg.Log)(h))
	}
	mux := http.NewServeMux()
	mux.Handle("/", c.agents)
	mux.Handle("GET "+announce.SnapshotPath, logged(c.peers.namingIssuer(announce.SnapshotHandler(c.snapshot, c.peers.runnerOfRequest))))
	mux.Handle("GET "+announce.AgentPath, logged(c.peers.namingIssuer(announce.AgentHandler(c.lookUp, c.peers.runnerOfRequest))))
	mux.Handle("GET "+announce.TimelinePath, logged(c.peers.namingIssuer(announce.TimelineHandler(c.timeline, c.peers.runnerOfRequest))))
	mux.Handle("GET "+announce.OpenAPIPath, logged(announce.OpenAPIHandler(c.cfg.Version)))
	mux.Handle("POST "+login.Path, logged(c.peers.namingIssuer(login.Handler(c.peers.renew))))
	mux.Handle("GET "+server.WebsocketPath, problem.WithRequestID(c.serveTunnel(sockets)))
	mux.Handle("GET /healthz", logged(http.HandlerFunc(serveHealth)))
	mux.Handle("GET /readyz", logged(http.HandlerFunc(c.serveReady)))
	return c.instruments.measured(&c.cfg, viaTLS, problem.WithRequestID(c.calls.wrap(plainPaths(mux))))
}

// snapshot returns what a Runner starts from.
func (c *ControlPlane) snapshot(ctx context.Context, runner string) ([]announce.Agent, error) {
	stored, err := c.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := c.store.Hosts(ctx, announce.MaxHosts)
	if err != nil {
		return nil, err
	}
	list := make([]announce.Agent, 0, len(stored))
	for _, a := range stored {
		if a.Revoked() {
			continue
		}
		c.liveness.seen(&a)
		told := c.registry.directory.announced(a)
		told.Hosts = hosts[a.ID]
		list = append(list, told)
	}
	return c.visible(ctx, runner, list)
}

// serveAPI serves HTTPS until the context ends, then lets calls finish.
func (c *ControlPlane) serveAPI(ctx context.Context, ln net.Listener) error {
	sockets := c.tunnel.Websockets(ctx)
	defer sockets.Wait()
	server := c.apiServer(sockets)
	served := make(chan error, 1)
	go func() { served <- httpserver.Serve(server, ln) }()
	return shutDown(ctx, server, served)
}

func (c *ControlPlane) apiServer(sockets *server.Websockets) *http.Server {
	return &http.Server{
		Handler: c.handler(sockets),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: c.certificate.Get,
			// Requested here and verified in peers, which can report what is wrong with it. No CAs
			// are named, because clients with a certificate of a former one would not even send it.
			ClientAuth:         tls.RequestClientCert,
			GetConfigForClient: inTurn,
		},
		ReadHeaderTimeout: handshakeTimeout, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		// OPTIONS * is a call like others, and there is none.
		DisableGeneralOptionsHandler: true,
		HTTP2:                        apiHTTP2(),
		ConnState:                    settle,
		ErrorLog:                     httpserver.ErrorLog(c.cfg.Log, ""),
	}
}

// handshakeTimeout bounds a handshake, without the wait for its turn, and a header.
const handshakeTimeout = 10 * time.Second

// inTurn makes a handshake wait for its turn. Its timeout, which net/http has started, starts again
// with the turn.
func inTurn(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if err := limit.TakeTurn(hello.Context(), hello.Conn); err != nil {
		return nil, err
	}
	return nil, hello.Conn.SetDeadline(time.Now().Add(handshakeTimeout))
}

// apiHTTP2 returns what one connection may take: agents have a few calls under way at a time, with
// bodies of at most controlapi's limit.
func apiHTTP2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          32,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     256 << 10,
		SendPingTimeout:               30 * time.Second,
		PingTimeout:                   15 * time.Second,
		WriteByteTimeout:              30 * time.Second,
	}
}

// settle takes a connection whose handshake is done out of the waiting room.
func settle(conn net.Conn, state http.ConnState) {
	if state == http.StateActive {
		limit.Settled(conn)
	}
}
