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

// openPorts are the public ports at which the gateway listens.
type openPorts struct {
	due    wake.Signal
	mu     sync.Mutex
	open   map[int]*openPort
	failed map[int]error // why it does not listen at those that Apps have
}

// openPort is a port at which the gateway listens.
type openPort struct {
	Port
	listener net.Listener
	cut      context.CancelFunc // ends its connections
}

func newOpenPorts() *openPorts {
	return &openPorts{due: wake.New(), open: map[int]*openPort{}, failed: map[int]error{}}
}

// PortFailure returns why the gateway does not listen at a port that an App has; nil if it does, or
// is about to.
func (g *Gateway) PortFailure(port int) error {
	g.ports.mu.Lock()
	defer g.ports.mu.Unlock()
	return g.ports.failed[port]
}

// servePorts listens at the ports that Apps have, until the context ends. Connections then have a
// moment to end.
func (g *Gateway) servePorts(ctx context.Context) error {
	if g.cfg.Listen == nil {
		return nil
	}
	var connections sync.WaitGroup
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		for _, open := range g.ports.open {
			_ = open.listener.Close()
		}
		late := time.AfterFunc(g.cfg.Patience.Leave, cut)
		connections.Wait()
		late.Stop()
		cut()
	}()
	for {
		g.followPorts(ctx, life, &connections)
		retry.Wait(ctx, portsPause)
		if !g.ports.due.Wait(ctx) {
			return nil
		}
	}
}

// followPorts opens the ports that Apps have now, and closes the others. A port that has gone to
// another App is closed first, with its connections.
func (g *Gateway) followPorts(ctx, life context.Context, connections *sync.WaitGroup) {
	wanted := map[int]Port{}
	for _, p := range g.cfg.Table.Ports() {
		wanted[p.Number] = p
	}
	g.closePorts(wanted)
	failed := map[int]error{}
	for number, p := range wanted {
		if g.ports.open[number] != nil { // this goroutine alone writes it
			continue
		}
		ln, err := g.cfg.Listen(ctx, number)
		if err != nil {
			failed[number] = err
			g.cfg.Log.Error().Err(err).Int("port", number).Msg("failed to listen at an App's public port; retrying")
			continue
		}
		g.openPort(life, p, ln, connections)
	}
	g.ports.mu.Lock()
	defer g.ports.mu.Unlock()
	g.ports.failed = failed
	g.cfg.Metrics.open.Set(float64(len(g.ports.open)))
}

// closePorts closes the ports that are not in wanted, and those that another App has there.
func (g *Gateway) closePorts(wanted map[int]Port) {
	for number, open := range g.ports.open {
		if now, there := wanted[number]; there && now == open.Port {
			continue
		}
		_ = open.listener.Close()
		open.cut()
		delete(g.ports.open, number)
	}
}

func (g *Gateway) openPort(life context.Context, p Port, ln net.Listener, connections *sync.WaitGroup) {
	owned, cut := context.WithCancel(life)
	g.ports.open[p.Number] = &openPort{p, ln, cut}
	connections.Go(func() {
		defer cut()
		_ = limit.Accept(life, ln, func(err error) {
			g.cfg.Log.Warn().Err(err).Int("port", p.Number).Msg("failed to accept connections at a public port; retrying")
		}, func(conn net.Conn) func() {
			return func() { g.carry(owned, p, conn) }
		})
	})
}

// carry passes on a connection to a port. A client that gets nowhere has it reset.
func (g *Gateway) carry(ctx context.Context, p Port, conn net.Conn) {
	agent := g.cfg.AgentName(p.AgentID)
	label, began := g.cfg.Metrics.bounded(agent), time.Now()
	v := &visit{id: rand.Text(), host: &Host{Name: p.Host, AgentID: p.AgentID, Given: true}, client: hostOnly(conn.RemoteAddr().String())}
	result := "ok"
	stream, leave, failed := g.openStream(ctx, p, v, conn)
	if failed != nil {
		result = failed.word
		_ = (wrapconn.Conn{Conn: conn}).SetLinger(0)
		_ = conn.Close()
	}
	g.cfg.Metrics.connections.WithLabelValues(label, result).Inc()
	g.cfg.Log.Debug().Str("requestId", v.id).Str("client", v.client).Int("port", p.Number).Str("agent", agent).Str("failed", v.failed).Msg("connection to a public port")
	if failed != nil {
		return
	}
	defer leave()
	limit.Settled(conn)
	counted := func(direction string) func(int) {
		to := g.cfg.Metrics.carried.WithLabelValues(label, direction)
		return func(n int) { to.Add(float64(n)) }
	}
	gatewaywire.Relay(ctx, conn, stream, portIdle, counted("in"), counted("out"))
	g.cfg.Log.Debug().Str("requestId", v.id).Dur("took", time.Since(began)).Msg("connection to a public port ended")
}

// openStream opens a stream to the App behind a port.
func (g *Gateway) openStream(ctx context.Context, p Port, v *visit, conn net.Conn) (stream net.Conn, leave func(), refused *failure) {
	leave, refused = g.streams.enter(v)
	if refused != nil {
		return nil, nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	stream, err := g.connect(ctx, gatewaywire.Connection{
		ID: v.id, Host: p.Host, Port: p.Port, Visitor: addrPort(conn.RemoteAddr()), At: addrPort(conn.LocalAddr()),
	}, p.AgentID)
	if err != nil {
		leave()
		f := failureOf(err)
		v.failed = f.word
		return nil, nil, &f
	}
	return stream, leave, nil
}

// connect opens a stream to an agent, and has the agent connect it to an App.
func (g *Gateway) connect(ctx context.Context, asks gatewaywire.Connection, agentID string) (net.Conn, error) {
	stream, err := g.dial(ctx, agentID)
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
