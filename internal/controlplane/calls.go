package controlplane

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// The ways by which API calls arrive, as labels of metrics.
const (
	viaTLS    = "tls"
	viaTunnel = "tunnel"
)

// tunnelCall is a stream in an agent's tunnel on which the agent calls the API. The call's
// connection has the TLS state that the tunnel has proven.
type tunnelCall struct {
	net.Conn
	proven tls.ConnectionState
}

type tunnelCallKey struct{}

// tunnelCalls is a listener whose connections are streams of tunnels.
type tunnelCalls struct {
	come   chan net.Conn
	over   chan struct{}
	closed sync.Once
}

func newTunnelCalls() *tunnelCalls {
	return &tunnelCalls{come: make(chan net.Conn), over: make(chan struct{})}
}

// take implements server.Config.Calls. It waits only until a goroutine has started.
func (l *tunnelCalls) take(conn net.Conn, proven tls.ConnectionState) {
	select {
	case l.come <- &tunnelCall{conn, proven}:
	case <-l.over:
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (l *tunnelCalls) Accept() (net.Conn, error) {
	select {
	case conn := <-l.come:
		return conn, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *tunnelCalls) Close() error {
	l.closed.Do(func() { close(l.over) })
	return nil
}

// Addr implements net.Listener. The address stands for all tunnels.
func (l *tunnelCalls) Addr() net.Addr { return tunnelAddr{} }

type tunnelAddr struct{}

func (tunnelAddr) Network() string { return viaTunnel }
func (tunnelAddr) String() string  { return viaTunnel }

// tunnelHandler serves only agents' own calls, as the HTTPS port does: each with its limits, and
// with the certificate verified again.
func (a *api) tunnelHandler() http.Handler {
	agents := a.agents(nil)
	calls := a.instruments.measured(a.cfg, viaTunnel, a.calls.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, controlapi.AgentPaths) {
			problem.Write(w, "", problem.Errorf(problem.NotFound, "call the HTTPS API", "there is nothing at %s in a tunnel", r.URL.Path))
			return
		}
		agents.ServeHTTP(w, r)
	})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if call, ok := r.Context().Value(tunnelCallKey{}).(*tunnelCall); ok {
			r.TLS = &call.proven
		}
		calls.ServeHTTP(w, r)
	})
}

// serveTunnelCalls serves the calls in tunnels until the context ends, then lets them finish.
func (a *api) serveTunnelCalls(ctx context.Context) error {
	server := a.tunnelCallServer()
	return httpserver.Run(ctx, server, a.inTunnels, httpserver.Stop{Drain: drainTimeout})
}

func (a *api) tunnelCallServer() *http.Server {
	server := &http.Server{
		Handler: a.tunnelHandler(), Protocols: new(http.Protocols),
		ReadHeaderTimeout: handshakeTimeout, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if above, ok := conn.(interface{ NetConn() net.Conn }); ok {
				conn = above.NetConn()
			}
			return context.WithValue(ctx, tunnelCallKey{}, conn)
		},
		ErrorLog: httpserver.ErrorLog(a.cfg.Log, ""),
	}
	server.Protocols.SetHTTP1(true)
	return server
}
