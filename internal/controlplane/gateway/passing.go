package gateway

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/sni"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// passing is the listener of HTTPS. It passes on the connections to hosts that end TLS themselves,
// and delivers the others with what was read of them.
type passing struct {
	*handoff
	g *Gateway
}

// listenPassing returns ln without the connections that g.ports carries.
func listenPassing(ln net.Listener, g *Gateway) net.Listener {
	p := &passing{newHandoff(ln), g}
	p.start(p.take)
	return p
}

// take looks into a connection if there may be a host for it.
func (p *passing) take(conn net.Conn) (work func()) {
	if !p.g.cfg.Table.Passes() {
		p.deliver(conn)
		return func() {}
	}
	return func() {
		stop := context.AfterFunc(p.life, func() { _ = conn.Close() })
		host, whole, err := p.look(conn)
		stop()
		switch {
		case err != nil:
			_ = conn.Close()
		case host != nil:
			p.g.ports.pass(host, whole)
		default:
			p.deliver(whole)
		}
	}
}

// look returns the host of a connection that is to be passed on, nil if it is not, and the
// connection from its beginning. The TLS server answers what is not a ClientHello.
func (p *passing) look(conn net.Conn) (host *Host, whole net.Conn, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(p.g.cfg.Patience.Header)); err != nil {
		return nil, nil, err
	}
	watched := &watchedReader{conn: conn}
	name, read, err := sni.Peek(watched)
	if watched.failed != nil {
		return nil, nil, watched.failed
	}
	if err == nil {
		if found, served := p.g.cfg.Table.Lookup(name); served && found.Passed != 0 {
			host = found
		}
	}
	return host, sni.Replay(conn, read), conn.SetReadDeadline(time.Time{})
}

// watchedReader remembers why reading failed.
type watchedReader struct {
	conn   net.Conn
	failed error
}

// Read implements io.Reader.
func (r *watchedReader) Read(p []byte) (int, error) {
	n, err := r.conn.Read(p)
	if err != nil {
		r.failed = err
	}
	return n, err
}

// passed are the connections to a host that ends TLS itself.
type passed struct {
	Port
	life  context.Context //nolint:containedctx // of the connections
	cut   context.CancelFunc
	count int
}

// pass carries a connection to a host that ends TLS itself. It does not wait for its end.
func (o *openPorts) pass(h *Host, conn net.Conn) {
	p := Port{Protocol: gatewaywire.TLS, Number: cmp.Or(o.g.cfg.HTTPSPort, 443), AgentID: h.AgentID, Host: h.Name, Port: h.Passed}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.life == nil || o.life.Err() != nil || o.stopped {
		_ = (wrapconn.Conn{Conn: conn}).SetLinger(0)
		_ = conn.Close()
		return
	}
	of := o.passed[p.Host]
	if of != nil && of.Port != p {
		of.cut()
		of = nil
	}
	if of == nil {
		of = &passed{Port: p}
		of.life, of.cut = context.WithCancel(o.life)
		o.passed[p.Host] = of
	}
	of.count++
	o.connections.Go(func() {
		defer o.leavePassed(of)
		o.carryConn(of.life, p, conn)
	})
}

func (o *openPorts) leavePassed(of *passed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if of.count--; of.count > 0 {
		return
	}
	of.cut()
	if o.passed[of.Host] == of {
		delete(o.passed, of.Host)
	}
}

// cutPassed ends the connections to hosts that another App has now, or none.
func (o *openPorts) cutPassed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, of := range o.passed {
		h, served := o.g.cfg.Table.Lookup(name)
		if served && h.Name == name && h.AgentID == of.AgentID && h.Passed == of.Port.Port {
			continue
		}
		of.cut()
		delete(o.passed, name)
	}
}

// checkPassed has the agent connect to the App behind a host that ends TLS itself, and returns the
// word of what went wrong; empty for nothing.
func (o *openPorts) checkPassed(ctx context.Context, h *Host) (word string) {
	own := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
	stream, err := o.connect(ctx, gatewaywire.Connection{
		ID: "check", Protocol: gatewaywire.TLS, Host: h.Name, Port: h.Passed, Visitor: own, At: own,
	}, h.AgentID)
	if err != nil {
		return failureOf(err).word
	}
	_ = stream.Close()
	return ""
}
