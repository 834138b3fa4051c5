package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

const (
	// proxyHeaderTimeout is how long a load balancer may take to send its header, and
	// maxProxyHeaders how many of its connections may be without one. Beyond that the oldest is
	// closed.
	proxyHeaderTimeout = 5 * time.Second
	maxProxyHeaders    = 4096
)

// ProxyListener accepts connections of load balancers that send the PROXY protocol, version 1 or 2.
// Such a connection has the address of the visitor. Connections from elsewhere keep their own, and
// a header that they send is not read: it is not TLS and no HTTP.
type ProxyListener struct {
	*handoff
	balancers []netip.Prefix
	log       zerolog.Logger
	timeout   time.Duration
	room      *limit.Room
}

// ListenProxy reads the header of each connection from the balancers' networks. Close stops it.
func ListenProxy(ln net.Listener, balancers []netip.Prefix, log zerolog.Logger) *ProxyListener {
	l := &ProxyListener{
		handoff: newHandoff(ln), balancers: balancers, log: log, timeout: proxyHeaderTimeout, room: limit.NewRoom(maxProxyHeaders),
	}
	l.start(l.take)
	return l
}

func (l *ProxyListener) take(conn net.Conn) (work func()) {
	if !l.fromBalancer(conn.RemoteAddr()) {
		l.deliver(conn)
		return func() {}
	}
	leave := l.room.Enter(conn)
	return func() {
		defer leave()
		stop := context.AfterFunc(l.life, func() { _ = conn.Close() })
		proxied, err := readProxyHeader(conn, l.timeout)
		stop()
		if err != nil {
			_ = conn.Close()
			l.log.Debug().Err(err).Stringer("balancer", conn.RemoteAddr()).Msg("closing a connection without a valid PROXY header")
			return
		}
		l.deliver(proxied)
	}
}

func (l *ProxyListener) fromBalancer(addr net.Addr) bool {
	from, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(l.balancers, func(n netip.Prefix) bool { return n.Contains(from.Addr().Unmap().WithZone("")) })
}

// readProxyHeader returns the connection with the visitor's address. A balancer's own connections,
// such as its health checks, have the balancer's.
func readProxyHeader(conn net.Conn, within time.Duration) (net.Conn, error) {
	proxied := proxyproto.NewConn(conn,
		proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(within), proxyproto.ValidateHeader(validProxyHeader))
	if _, err := proxied.Read(nil); err != nil {
		return nil, err
	}
	return &proxiedConn{proxied, wrapconn.Conn{Conn: conn}}, nil
}

func validProxyHeader(h *proxyproto.Header) error {
	if _, _, tcp := h.TCPAddrs(); tcp || h.Command.IsLocal() {
		return nil
	}
	return fmt.Errorf("the PROXY header is about %s, not TCP", h.SourceAddr.Network())
}

// proxiedConn is without SyscallConn: what the socket has to read is not all that there is.
type proxiedConn struct {
	*proxyproto.Conn
	below wrapconn.Conn
}

// CloseWrite ends what is sent.
func (c *proxiedConn) CloseWrite() error { return c.below.CloseWrite() }

// SetLinger serves to refuse a connection by a reset.
func (c *proxiedConn) SetLinger(seconds int) error { return c.below.SetLinger(seconds) }
