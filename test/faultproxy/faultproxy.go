// Package faultproxy is a TCP forwarder that fails as networks do: it cuts, goes silent in one
// direction or both, delays, and stutters as TCP does when packets are lost.
//
// It does not use toxiproxy, which drops what it received while it is silent and then ends the
// connections. Networks do not do that, and commands must withstand late data in particular. The
// available kernel has no netem.
package faultproxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// chunk is how much is forwarded at a time, and so what one delay applies to.
	chunk = 32 << 10
	// retransmit is TCP's first wait for lost data; it doubles.
	retransmit    = 200 * time.Millisecond
	maxRetransmit = 4
)

// Condition is the condition of connections. The zero value means no fault.
type Condition struct {
	// Cut ends all connections with a reset and refuses new ones.
	Cut bool
	// HoldUp and HoldDown silently hold all data, from the client or to it. Held data arrives when
	// they end, if its sender has not given up.
	HoldUp, HoldDown bool
	// Delay and Jitter apply to each direction.
	Delay, Jitter time.Duration
	// Loss is the share of chunks that arrive as late as if they had been retransmitted.
	Loss float64
}

// Silent keeps connections open and forwards nothing.
var Silent = Condition{HoldUp: true, HoldDown: true}

// Proxy forwards connections to a target, or to several as a load balancer does.
type Proxy struct {
	Name     string
	listener net.Listener
	targets  []string
	turn     atomic.Uint64

	running sync.WaitGroup
	stop    context.CancelFunc

	mu    sync.Mutex
	is    Condition
	next  chan struct{} // closed when is changes
	conns map[*net.TCPConn]struct{}
}

// Listen forwards the connections to a new port of 127.0.0.1, until Close: to one target after the
// other, skipping those that do not listen.
func Listen(ctx context.Context, name string, targets ...string) (*Proxy, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &Proxy{Name: name, listener: l, targets: targets, stop: stop, next: make(chan struct{}), conns: map[*net.TCPConn]struct{}{}}
	p.running.Go(func() { p.accept(ctx) })
	return p, nil
}

// New is like Listen for a test, which closes the proxy at its end.
func New(t testing.TB, targets ...string) *Proxy {
	t.Helper()
	p, err := Listen(t.Context(), t.Name(), targets...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Addr returns the listening address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the listening port.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Set changes the condition of the connections.
func (p *Proxy) Set(c Condition) {
	p.mu.Lock()
	p.is = c
	close(p.next)
	p.next = make(chan struct{})
	p.mu.Unlock()
	if c.Cut {
		p.Reset()
	}
}

// Reset ends all current connections with a reset.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// Close ends all connections and waits until nothing of the proxy is left.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.Reset()
	p.running.Wait()
	return err
}

// now returns the condition of connections, and a channel that is closed when it changes.
func (p *Proxy) now() (Condition, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.is, p.next
}

func (p *Proxy) accept(ctx context.Context) {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection
		}
		p.running.Go(func() { p.forward(ctx, conn.(*net.TCPConn)) })
	}
}

// forward serves one connection to its end.
func (p *Proxy) forward(ctx context.Context, client *net.TCPConn) {
	defer p.keep(client)()
	if !p.passes(ctx, true) || !p.passes(ctx, false) { // a handshake needs both
		return
	}
	server, err := p.dial(ctx)
	if err != nil {
		_ = client.SetLinger(0) // as if no server listened
		return
	}
	defer p.keep(server)()
	var both sync.WaitGroup
	both.Go(func() { p.pump(ctx, client, server, true) })
	both.Go(func() { p.pump(ctx, server, client, false) })
	both.Wait()
}

// dial connects to the target whose turn it is, or to the next that listens.
func (p *Proxy) dial(ctx context.Context) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	turn, err := p.turn.Add(1)-1, error(nil)
	for i := range uint64(len(p.targets)) {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", p.targets[(turn+i)%uint64(len(p.targets))]); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	return nil, err
}

// keep registers a connection for Reset until it is over.
func (p *Proxy) keep(c *net.TCPConn) (over func()) {
	p.mu.Lock()
	p.conns[c] = struct{}{}
	if p.is.Cut {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		delete(p.conns, c)
		p.mu.Unlock()
		_ = c.Close()
	}
}

// pump forwards one direction. It passes an orderly end on as such; any other end closes the whole
// connection.
func (p *Proxy) pump(ctx context.Context, from, to *net.TCPConn, up bool) {
	buf := make([]byte, chunk)
	for p.passes(ctx, up) {
		n, err := from.Read(buf)
		if !p.passes(ctx, up) { // it may be silent by now, and cut after that
			break
		}
		if n > 0 {
			p.late(ctx)
			if _, failed := to.Write(buf[:n]); failed != nil {
				break
			}
		}
		if err != nil {
			if to.CloseWrite() == nil && isEnd(err) {
				return
			}
			break
		}
	}
	for _, c := range []*net.TCPConn{from, to} {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) }

// passes waits until the direction forwards data; it returns false at the proxy's end.
func (p *Proxy) passes(ctx context.Context, up bool) bool {
	for {
		is, changed := p.now()
		if held := up && is.HoldUp || !up && is.HoldDown; !held {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// late waits for a chunk's delay. A proxy that recovers does not hold back waiting data.
func (p *Proxy) late(ctx context.Context) {
	is, changed := p.now()
	d := is.Delay
	if is.Jitter > 0 {
		d += rand.N(is.Jitter)
	}
	for n := 0; is.Loss > 0 && n < maxRetransmit && rand.Float64() < is.Loss; n++ {
		d += retransmit << n
	}
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}
