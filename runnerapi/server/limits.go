package server

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"
	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Limits bounds what Runners can use of an agent. Behind the tunnel a peer is identified by its
// certificate, so a Runner is one peer from all of its addresses. Zero values select the defaults,
// which are far beyond what a busy Runner does.
type Limits struct {
	// Connections at a time, in total and per Runner (1024, 512).
	Connections, ConnectionsPerRunner int
	// Handshakes are connections that have sent no request yet (256). Beyond that, the one that has
	// waited longest is closed.
	Handshakes int
	// Calls at a time, including waits and followed logs, in total and per Runner (2048, 1024).
	Calls, CallsPerRunner int
	// Bodies of more than 64 KiB at a time, in total and per Runner (16, 8). The agent holds them
	// in memory, of which it has little.
	Bodies, BodiesPerRunner int
	// Streams of the Kubernetes API at a time, in total and per Runner (256, 128). Each uses a
	// connection to the API server.
	Streams, StreamsPerRunner int
	// Stall is how long a connection, or a followed log, may read nothing of what it is sent (1
	// min).
	Stall time.Duration
}

func (l Limits) withDefaults() Limits {
	for field, value := range map[*int]int{
		&l.Connections: 1024, &l.ConnectionsPerRunner: 512, &l.Handshakes: 256,
		&l.Calls: 2048, &l.CallsPerRunner: 1024, &l.Bodies: 16, &l.BodiesPerRunner: 8,
		&l.Streams: 256, &l.StreamsPerRunner: 128,
	} {
		if *field <= 0 {
			*field = value
		}
	}
	if l.Stall <= 0 {
		l.Stall = time.Minute
	}
	return l
}

// busyRetry is the delay after which a call beyond its Runner's share may be retried.
const busyRetry = time.Second

// shared refuses calls beyond a Runner's share ahead of everything that costs something, including
// the audit log: such calls were neither carried out nor examined.
func (s *server) shared(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, ok := s.calls.Enter(callerFrom(r.Context()).Runner)
		if !ok {
			s.answerError(w, r, busy("too many of this Runner's calls are under way"))
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}

func busy(detail string) *runnerapi.Error {
	return problem.Errorf(problem.TooManyRequests, "wait as long as Retry-After says, and send fewer calls at a time", "%s", detail).WithRetryAfter(busyRetry)
}

// largeBodies is a middleware that bounds the calls with bodies that may be large, from
// before they are read until they are answered.
func (s *server) largeBodies(ctx huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(ctx)
	if 0 <= r.ContentLength && r.ContentLength <= maxSmallBody {
		next(ctx)
		return
	}
	leave, ok := s.bodies.Enter(callerFrom(r.Context()).Runner)
	if !ok {
		problem.Write(w, problem.RequestID(r.Context()), busy("too many large bodies of this Runner's are under way"))
		return
	}
	defer leave()
	next(ctx)
}

// guardListener bounds connections before TLS, when no peer is identified yet.
func guardListener(ln net.Listener, l Limits, log zerolog.Logger) net.Listener {
	return limit.Listen(ln, limit.Config{
		Name: "runner API", Connections: l.Connections, PerPeer: l.Connections, Handshakes: l.Handshakes, Log: log,
	})
}

// connections bounds those of each Runner, which is known once its handshake is done.
type connections struct {
	shares *limit.Shares
	log    zerolog.Logger
	told   rate.Sometimes
	leave  sync.Map // net.Conn to func()
}

// state is an http.Server.ConnState.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		if _, known := c.leave.Load(conn); known {
			return // the connection was idle
		}
		if d := trackedOf(conn); d != nil {
			limit.Settled(d.Conn)
			c.enter(conn, d.name())
		}
	case http.StateClosed, http.StateHijacked:
		if leave, known := c.leave.LoadAndDelete(conn); known {
			leave.(func())()
		}
	}
}

func (c *connections) enter(conn net.Conn, runner string) {
	leave, ok := c.shares.Enter(runner)
	if !ok {
		c.told.Do(func() {
			c.log.Warn().Str("runner", runner).Msg("runner API: a Runner has too many connections; more are closed")
		})
		_ = conn.Close()
		return
	}
	c.leave.Store(conn, leave)
}

// trackedOf returns the trackedConn below the connections of TLS and of the HTTP server.
func trackedOf(conn net.Conn) *trackedConn {
	if above, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = above.NetConn()
	}
	d, _ := conn.(*trackedConn)
	return d
}

// name returns the identity in the certificate of the admitted Runner.
func (d *trackedConn) name() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runner == nil || len(d.runner.chains) == 0 || len(d.runner.chains[0][0].URIs) == 0 {
		return ""
	}
	return d.runner.chains[0][0].URIs[0].String()
}
