package tunneltest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Wire forwards TCP to an address and can fail like a network: Freeze keeps connections
// open and moves nothing any more, Cut closes them.
type Wire struct {
	ln     net.Listener
	target func() string
	all    sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	frozen bool
	closed bool
	wake   *sync.Cond
}

// NewWire forwards to what target says at each connection.
func NewWire(t testing.TB, target func() string) *Wire {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{ln: ln, target: target, conns: make(map[net.Conn]struct{})}
	w.wake = sync.NewCond(&w.mu)
	w.all.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// Addr is where to connect to.
func (w *Wire) Addr() string { return w.ln.Addr().String() }

// Freeze makes every connection half-open. New ones are accepted and get nothing.
func (w *Wire) Freeze() { w.set(func() { w.frozen = true }) }

// Thaw ends Freeze for connections to come; those that were frozen stay silent no more.
func (w *Wire) Thaw() { w.set(func() { w.frozen = false }) }

// Cut closes every connection.
func (w *Wire) Cut() {
	w.set(func() {
		for c := range w.conns {
			_ = c.Close()
		}
	})
}

func (w *Wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.wake.Broadcast()
}

func (w *Wire) close() {
	_ = w.ln.Close()
	w.set(func() { w.closed = true })
	w.Cut()
	w.all.Wait()
}

func (w *Wire) accept() {
	for {
		near, err := w.ln.Accept()
		if err != nil {
			return
		}
		dialer := net.Dialer{Timeout: 5 * time.Second}
		far, err := dialer.DialContext(context.Background(), "tcp", w.target())
		if err != nil {
			_ = near.Close()
			continue
		}
		w.set(func() { w.conns[near], w.conns[far] = struct{}{}, struct{}{} })
		w.all.Go(func() { w.copy(near, far) })
		w.all.Go(func() { w.copy(far, near) })
	}
}

func (w *Wire) copy(dst, src net.Conn) {
	defer func() {
		_, _ = dst.Close(), src.Close()
		w.set(func() { delete(w.conns, src) })
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := src.Read(buffer)
		w.waitWhileFrozen()
		if err != nil {
			return
		}
		if _, err := dst.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (w *Wire) waitWhileFrozen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.frozen && !w.closed {
		w.wake.Wait()
	}
}
