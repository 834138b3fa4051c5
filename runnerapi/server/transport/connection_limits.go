package transport

import (
	"net"
	"net/http"
	"sync"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

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
			c.log.Warn().Str("runner", runner).Msg("runner API: a Runner has too many connections; closing further ones")
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
