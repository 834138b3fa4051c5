package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/agents"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/receiver"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	announceserver "github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// drainTimeout is how long calls that are in progress may take when we stop.
const drainTimeout = 10 * time.Second

// idleTimeout ends connections that are not in use: thousands of agents beat every half
// minute each, and what a connection keeps in memory meanwhile is a third of an agent. Theirs
// come again with a session ticket, which costs a third of a handshake.
const idleTimeout = 15 * time.Second

// maxHeader bounds a request's header.
const maxHeader = 32 << 10

// backend implements controlapi.Backend with the parts that have its calls.
type backend struct {
	*enrolment.Registrar
	*agents.Fleet
	*routes.Registry
	*visitors.Visitors
}

// api serves the calls of agents, Runners and operators: on the HTTPS port, and agents' own in
// tunnels.
type api struct {
	cfg         *Config
	authn       *authn.Authenticator
	view        *discovery.View
	agents      func(elsewhere func(*http.Request, string) bool) http.Handler // what agents call
	calls       *callLimits
	inTunnels   *tunnelCalls
	tunnel      *server.Server
	certificate *ca.ServerCertificate
	instruments *instruments
	ready       http.Handler
	operators   http.Handler // what operators call
	console     http.Handler // pages for operators
	receivers   *receiver.Receivers
	exchange    *exchange.Exchange
}

// newAPI returns what serves calls. The tunnel, the readiness and what
// operators call and see are set when they exist.
func newAPI(cfg *Config, callers *authn.Authenticator, view *discovery.View, certificate *ca.ServerCertificate, i *instruments, b controlapi.Backend) *api {
	return &api{
		cfg: cfg, authn: callers, view: view, certificate: certificate, instruments: i,
		calls: newCallLimits(callers, cfg.Limits.SharedAddresses), inTunnels: newTunnelCalls(),
		agents: func(elsewhere func(*http.Request, string) bool) http.Handler {
			return authn.WithCall(controlapi.NewHandler(controlapi.HandlerConfig{
				Backend: b, Identify: callers.AgentOfRequest, Version: cfg.Version, Elsewhere: elsewhere, Log: cfg.Log,
			}))
		},
	}
}

// has reports whether a pattern other than "/" has the method for the request's path.
func has(mux *http.ServeMux, r *http.Request, method string) bool {
	other := *r
	other.Method = method
	_, pattern := mux.Handler(&other)
	return pattern != "/" && pattern != ""
}

// handler returns the handler of the HTTPS port.
func (a *api) handler(sockets *server.Websockets) http.Handler {
	logged := a.logged
	mux := a.public()
	mux.Handle("/", a.agents(func(r *http.Request, method string) bool { return has(mux, r, method) }))
	mux.Handle("GET "+announce.SnapshotPath, logged(a.authn.NamingIssuer(announceserver.SnapshotHandler(a.view.Snapshot, a.authn.RunnerOfRequest))))
	mux.Handle("GET "+announce.AgentPath, logged(a.authn.NamingIssuer(announceserver.AgentHandler(a.view.LookUp, a.authn.RunnerOfRequest))))
	mux.Handle("GET "+announce.TimelinePath, logged(a.authn.NamingIssuer(announceserver.TimelineHandler(a.view.Timeline, a.authn.RunnerOfRequest))))
	mux.Handle(announce.SourceWebhookPath, logged(a.authn.NamingIssuer(announceserver.SourceWebhookHandler(a.receivers, a.authn.RunnerOfRequest))))
	mux.Handle("GET "+announce.VersionPath, logged(announceserver.VersionHandler(a.cfg.Version)))
	mux.Handle("GET "+announceserver.OpenAPIPath, logged(announceserver.OpenAPIHandler(a.cfg.Version)))
	mux.Handle(operatorapi.Prefix, logged(a.operators))
	mux.Handle("POST "+login.Path, logged(a.authn.NamingIssuer(login.Handler(a.authn.Renew))))
	mux.Handle("POST "+login.ExchangePath, logged(a.authn.NamingIssuer(login.ExchangeHandler(a.exchange.Serve))))
	mux.Handle("GET "+server.WebsocketPath, problem.WithRequestID(a.serveTunnel(sockets)))
	mux.Handle("GET /healthz", logged(http.HandlerFunc(serveHealth)))
	mux.Handle("GET /readyz", logged(a.ready))
	return a.serving(mux)
}

// public returns the part of handler's patterns that the console's host at the gateway has, too:
// the console, and what Git servers call.
func (a *api) public() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("POST "+receiver.Path, a.logged(a.receivers))
	mux.Handle(operatorapi.ConsolePath+"/", a.logged(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.console.ServeHTTP(w, r)
	})))
	mux.HandleFunc("GET /{$}", toConsole)
	return mux
}

// pages returns the handler of the console's host at the gateway.
func (a *api) pages() http.Handler { return a.serving(a.public()) }

func (a *api) serving(mux *http.ServeMux) http.Handler {
	return a.instruments.measured(a.cfg, viaTLS, problem.WithRequestID(a.calls.wrap(plainPaths(mux))))
}

func (a *api) logged(h http.Handler) http.Handler {
	return problem.WithRequestID(controlapi.LogRequests(a.cfg.Log)(h))
}

// serveAPI serves HTTPS until the context ends, then lets calls finish. Tunnels over WebSockets
// last until tunnels ends.
func (a *api) serveAPI(ctx, tunnels context.Context, ln net.Listener) error {
	sockets := a.tunnel.Websockets(tunnels)
	defer sockets.Wait()
	server := a.apiServer(sockets)
	return httpserver.Run(ctx, server, ln, httpserver.Stop{Drain: drainTimeout})
}

func (a *api) apiServer(sockets *server.Websockets) *http.Server {
	return &http.Server{
		Handler: a.handler(sockets),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, GetCertificate: a.certificate.Get,
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
		ErrorLog:                     httpserver.ErrorLog(a.cfg.Log, ""),
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

// apiHTTP2 returns what one connection may take: agents have a few calls in progress at a time,
// with bodies of at most controlapi's limit.
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
