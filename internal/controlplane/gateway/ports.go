package gateway

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

const (
	// connectTimeout is how long an agent may take to connect to an App: longer than it waits for
	// its routes and tries the App's pods.
	connectTimeout = 20 * time.Second
	// portIdle is longer than an agent lets a connection have nothing to say.
	portIdle = 25 * time.Hour
	// portsPause is the least time between two looks at the table's ports.
	portsPause = 100 * time.Millisecond
)

// place is a port of the gateway, of a protocol.
type place struct {
	protocol string
	number   int
}

// openPorts are the public ports at which a gateway listens.
type openPorts struct {
	g      *Gateway
	due    wake.Signal
	mu     sync.Mutex
	open   map[place]*openPort
	failed map[place]error    // why it does not listen at those that Apps have
	passed map[string]*passed // by host; those that end TLS themselves

	connections sync.WaitGroup
	life        context.Context //nolint:containedctx // of the connections; nil before begin
	cut         context.CancelFunc
	stopped     bool // no connection begins any more
}

// openPort is a port at which the gateway listens.
type openPort struct {
	Port
	listener io.Closer
	cut      context.CancelFunc // ends its connections
}

func newOpenPorts(g *Gateway) *openPorts {
	return &openPorts{g: g, due: wake.New(), open: map[place]*openPort{}, failed: map[place]error{}, passed: map[string]*passed{}}
}

// PortFailure returns why the gateway does not listen at a port that an App has; nil if it does, or
// is about to.
func (g *Gateway) PortFailure(protocol string, port int) error {
	g.ports.mu.Lock()
	defer g.ports.mu.Unlock()
	return g.ports.failed[place{protocol, port}]
}

// begin lets connections begin. It is called before serve.
func (o *openPorts) begin(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.life, o.cut = context.WithCancel(context.WithoutCancel(ctx))
}

// finish closes the ports, and waits until all connections have ended. They have a moment for it.
func (o *openPorts) finish() {
	for _, open := range o.open {
		_ = open.listener.Close()
	}
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	late := time.AfterFunc(o.g.cfg.Patience.Leave, o.cut)
	o.connections.Wait()
	late.Stop()
	o.cut()
}

// serve listens at the ports that Apps have, until the context ends. Connections then have a
// moment to end.
func (o *openPorts) serve(ctx context.Context) error {
	defer o.finish()
	for {
		o.cutPassed()
		if o.g.cfg.Listen != nil {
			o.follow(ctx)
		}
		retry.Wait(ctx, portsPause)
		if !o.due.Wait(ctx) {
			return nil
		}
	}
}

// follow opens the ports that Apps have now, and closes the others. A port that has gone to
// another App is closed first, with its connections.
func (o *openPorts) follow(ctx context.Context) {
	wanted := map[place]Port{}
	for _, p := range o.g.cfg.Table.Ports() {
		wanted[place{p.Protocol, p.Number}] = p
	}
	o.closeOthers(wanted)
	failed := map[place]error{}
	for at, p := range wanted {
		if o.open[at] != nil { // this goroutine alone writes it
			continue
		}
		if err := o.listen(ctx, p); err != nil {
			failed[at] = err
			o.g.cfg.Log.Error().Err(err).Str("protocol", p.Protocol).Int("port", p.Number).Msg("failed to listen at an App's public port; retrying")
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = failed
	o.g.cfg.Metrics.open.Set(float64(len(o.open)))
}

// closeOthers closes the ports that are not in wanted, and those that another App has there.
func (o *openPorts) closeOthers(wanted map[place]Port) {
	for at, open := range o.open {
		if now, there := wanted[at]; there && now == open.Port {
			continue
		}
		_ = open.listener.Close()
		open.cut()
		delete(o.open, at)
	}
}

// listen opens a port, and carries what comes to it.
func (o *openPorts) listen(ctx context.Context, p Port) error {
	if p.Protocol == gatewaywire.UDP {
		conn, err := o.g.cfg.ListenUDP(ctx, p.Number)
		if err != nil {
			return err
		}
		flows, err := newFlows(o, p, conn)
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		o.keep(p, conn, flows.serve) //nolint:contextcheck // the connections have their own life
		return nil
	}
	ln, err := o.g.cfg.Listen(ctx, p.Number)
	if err != nil {
		return err
	}
	o.keep(p, ln, func(owned context.Context) { //nolint:contextcheck // likewise
		_ = limit.Accept(o.life, ln, func(err error) { //nolint:contextcheck // likewise
			o.g.cfg.Log.Warn().Err(err).Int("port", p.Number).Msg("failed to accept connections at a public port; retrying")
		}, func(conn net.Conn) func() {
			return func() { o.carryConn(owned, p, conn) }
		})
	})
	return nil
}

// keep serves a port that was opened, until it is closed. Its connections end with owned.
func (o *openPorts) keep(p Port, ln io.Closer, serve func(owned context.Context)) {
	owned, cut := context.WithCancel(o.life)
	o.open[place{p.Protocol, p.Number}] = &openPort{p, ln, cut}
	o.connections.Go(func() {
		defer cut()
		serve(owned)
	})
}

// visitor is the visitor's end of a connection to a public port, or of a flow.
type visitor struct {
	conn io.ReadWriteCloser
	// from is where it comes from, and at the public port that it came to.
	from, at netip.AddrPort
	// opened is called when the App is connected, and refused when it is not.
	opened, refused func()
}

// carryConn passes on a connection to a port. A client that gets nowhere has it reset.
func (o *openPorts) carryConn(ctx context.Context, p Port, conn net.Conn) {
	o.carry(ctx, p, o.g.streams, visitor{
		conn: conn, from: addrPort(conn.RemoteAddr()), at: addrPort(conn.LocalAddr()),
		opened:  func() { limit.Settled(conn) },
		refused: func() { _ = (wrapconn.Conn{Conn: conn}).SetLinger(0) },
	})
}

// carry passes on a connection to a port, or a flow, until it has ended. It has a place among
// places meanwhile.
func (o *openPorts) carry(ctx context.Context, p Port, places *underWay, from visitor) {
	agent := o.g.cfg.AgentName(p.AgentID)
	label, began := o.g.cfg.Metrics.bounded(agent), time.Now()
	v := &visit{id: rand.Text(), host: &Host{Name: p.Host, AgentID: p.AgentID, Given: true}, client: from.from.Addr().String()}
	result := "ok"
	stream, leave, failed := o.openStream(ctx, p, v, places, from)
	if failed != nil {
		result = failed.word
		from.refused()
		_ = from.conn.Close()
	}
	o.g.cfg.Metrics.connections.WithLabelValues(label, p.Protocol, result).Inc()
	o.g.cfg.Log.Debug().Str("requestId", v.id).Str("client", v.client).Str("protocol", p.Protocol).Int("port", p.Number).Str("agent", agent).Str("failed", v.failed).Msg("connection to a public port")
	if failed != nil {
		return
	}
	defer leave()
	from.opened()
	counted := func(direction string) func(int) {
		to := o.g.cfg.Metrics.carried.WithLabelValues(label, p.Protocol, direction)
		return func(n int) { to.Add(float64(n)) }
	}
	gatewaywire.Relay(ctx, from.conn, stream, portIdle, counted("in"), counted("out"))
	o.g.cfg.Log.Debug().Str("requestId", v.id).Dur("took", time.Since(began)).Msg("connection to a public port ended")
}

// openStream opens a stream to the App behind a port.
func (o *openPorts) openStream(ctx context.Context, p Port, v *visit, places *underWay, from visitor) (stream net.Conn, leave func(), refused *failure) {
	leave, refused = places.enter(v)
	if refused != nil {
		return nil, nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	stream, err := o.connect(ctx, gatewaywire.Connection{
		ID: v.id, Protocol: p.Protocol, Host: p.Host, Port: p.Port, Visitor: from.from, At: from.at,
	}, p.AgentID)
	if err != nil {
		leave()
		f := failureOf(err)
		v.failed = f.word
		return nil, nil, &f
	}
	if p.Protocol == gatewaywire.UDP {
		stream = gatewaywire.Packets(stream)
	}
	return stream, leave, nil
}

// connect opens a stream to an agent, and has the agent connect it to an App.
func (o *openPorts) connect(ctx context.Context, asks gatewaywire.Connection, agentID string) (net.Conn, error) {
	stream, err := o.g.dial(ctx, agentID)
	if err != nil {
		return nil, noStreamError{err}
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var answered net.Conn
	if err = asks.Request().Write(stream); err == nil {
		answered, err = readAnswer(stream)
	}
	if err == nil && stop() {
		return answered, nil
	}
	return nil, errors.Join(err, ctx.Err(), stream.Close())
}

// readAnswer reads an agent's answer to CONNECT.
func readAnswer(stream net.Conn) (net.Conn, error) {
	bounded := &io.LimitedReader{R: stream, N: maxHeader}
	reader := bufio.NewReader(bounded)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("the agent's answer: %w", err)
	}
	_ = resp.Body.Close() // it is empty: what follows is the connection's
	if word := resp.Header.Get(gatewaywire.HeaderFailed); word != "" {
		return nil, agentError(word)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answered with status %d", resp.StatusCode)
	}
	return gatewaywire.Resume(stream, reader)
}

// addrPort returns the address of a connection; the zero value for one that is not TCP's.
func addrPort(addr net.Addr) netip.AddrPort {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
