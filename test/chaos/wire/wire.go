// Package wire is a TCP forwarder that fails as networks do: it cuts, goes silent in
// one direction or both, delays, and stutters as TCP does when packets are lost.
//
// It is not toxiproxy because that drops what it was given while it is silent and
// ends the connections afterwards: no network does, and what comes late is just
// what commands have to bear. The kernel at hand has no netem.
package wire

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// chunk is how much goes through at a time, and so what one delay is for.
	chunk = 32 << 10
	// retransmit is the first wait of TCP for what was lost; it doubles.
	retransmit    = 200 * time.Millisecond
	maxRetransmit = 4
)

// Condition is how a wire is. The zero value is well.
type Condition struct {
	// Cut ends all connections with a reset and refuses new ones.
	Cut bool
	// HoldUp and HoldDown let nothing through, from the client or to it, and tell
	// nobody. What is held arrives when they end, if its sender has not given up.
	HoldUp, HoldDown bool
	// Delay and Jitter are for each direction.
	Delay, Jitter time.Duration
	// Loss is the share of chunks that come as late as if they had been sent again.
	Loss float64
}

// Wire forwards connections to a target, or to several as a load balancer does.
type Wire struct {
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

// Listen forwards what comes to a new port of 127.0.0.1, until Close: to one target after the
// other, and past those that do not listen.
func Listen(ctx context.Context, name string, targets ...string) (*Wire, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &Wire{Name: name, listener: l, targets: targets, stop: stop, next: make(chan struct{}), conns: map[*net.TCPConn]struct{}{}}
	w.running.Go(func() { w.accept(ctx) })
	return w, nil
}

// Addr is where it listens.
func (w *Wire) Addr() string { return w.listener.Addr().String() }

// Port is where it listens.
func (w *Wire) Port() int { return w.listener.Addr().(*net.TCPAddr).Port }

// Set changes how the wire is.
func (w *Wire) Set(c Condition) {
	w.mu.Lock()
	w.is = c
	close(w.next)
	w.next = make(chan struct{})
	w.mu.Unlock()
	if c.Cut {
		w.Reset()
	}
}

// Reset ends all connections there are, with a reset.
func (w *Wire) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// Close ends all connections and waits until nothing of the wire is left.
func (w *Wire) Close() error {
	w.stop()
	err := w.listener.Close()
	w.Reset()
	w.running.Wait()
	return err
}

// now is how the wire is, and a channel that is closed when that changes.
func (w *Wire) now() (Condition, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.is, w.next
}

func (w *Wire) accept(ctx context.Context) {
	for {
		conn, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection
		}
		w.running.Go(func() { w.forward(ctx, conn.(*net.TCPConn)) })
	}
}

// forward serves one connection to its end.
func (w *Wire) forward(ctx context.Context, client *net.TCPConn) {
	defer w.keep(client)()
	if !w.passes(ctx, true) || !w.passes(ctx, false) { // a handshake needs both
		return
	}
	server, err := w.dial(ctx)
	if err != nil {
		_ = client.SetLinger(0) // as nobody listens
		return
	}
	defer w.keep(server)()
	var both sync.WaitGroup
	both.Go(func() { w.pump(ctx, client, server, true) })
	both.Go(func() { w.pump(ctx, server, client, false) })
	both.Wait()
}

// dial connects to the target whose turn it is, or to the next that listens.
func (w *Wire) dial(ctx context.Context) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	turn, err := w.turn.Add(1), error(nil)
	for i := range uint64(len(w.targets)) {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", w.targets[(turn+i)%uint64(len(w.targets))]); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	return nil, err
}

// keep has Reset know a connection until it is over.
func (w *Wire) keep(c *net.TCPConn) (over func()) {
	w.mu.Lock()
	w.conns[c] = struct{}{}
	if w.is.Cut {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
		_ = c.Close()
	}
}

// pump carries one direction. An end that is orderly is passed on as such; any
// other ends the connection as a whole.
func (w *Wire) pump(ctx context.Context, from, to *net.TCPConn, up bool) {
	buf := make([]byte, chunk)
	for w.passes(ctx, up) {
		n, err := from.Read(buf)
		if !w.passes(ctx, up) { // it may be silent by now, and cut after that
			break
		}
		if n > 0 {
			w.late(ctx)
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

// passes waits until the direction lets something through; false at the wire's end.
func (w *Wire) passes(ctx context.Context, up bool) bool {
	for {
		is, changed := w.now()
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

// late waits for as long as a chunk is under way. A wire that becomes well does not
// hold back what is waiting.
func (w *Wire) late(ctx context.Context) {
	is, changed := w.now()
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
