package transport

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"
)

// connTracker tracks the open connections, so that those of a Runner that may no longer stay can be
// closed.
type connTracker struct {
	mu   sync.Mutex
	open map[*trackedConn]struct{}
}

// trackedConn is one connection, below its TLS.
type trackedConn struct {
	net.Conn
	tracker *connTracker

	mu      sync.Mutex
	runner  *runner // nil until a Runner is admitted
	timer   *time.Timer
	closed  bool
	refresh func(context.Context) error // of the control plane's connection

	leaving bool // closed within goAwayTime
	streams map[*stream]struct{}
}

// trackingListener wraps each accepted connection in a trackedConn.
type trackingListener struct {
	net.Listener
	tracker *connTracker
}

// Accept implements net.Listener.
func (l trackingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d := &trackedConn{Conn: conn, tracker: l.tracker}
	l.tracker.mu.Lock()
	defer l.tracker.mu.Unlock()
	l.tracker.open[d] = struct{}{}
	return d, nil
}

// Close implements net.Conn.
func (d *trackedConn) Close() error {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.tracker.mu.Lock()
	delete(d.tracker.open, d)
	d.tracker.mu.Unlock()
	return d.Conn.Close()
}

// admit records the admitted Runner until its certificate expires.
func (d *trackedConn) admit(r *runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runner = r
	d.arm()
}

// soonest is how often a connection is checked whose certificate has expired by the timer's clock
// but not by the agent's.
const soonest = time.Second

// arm schedules a check of the connection for when its certificate expires. The lock is held.
func (d *trackedConn) arm() {
	if !d.closed {
		d.timer = time.AfterFunc(max(d.runner.until.Sub(d.runner.now()), 0)+time.Millisecond, d.look)
	}
}

// look closes the connection if its Runner may no longer stay.
func (d *trackedConn) look() {
	d.mu.Lock()
	r := d.runner
	if r == nil || d.closed || d.leaving {
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	refusal := r.still()
	if refusal == nil {
		d.again(r)
		return
	}
	refusal.Open = true
	r.refused(*refusal)
	if d.endStreams(refusal.Code) {
		return
	}
	_ = d.Close() // its server notices by its next read
}

// again resets the timer when it is due.
func (d *trackedConn) again(r *runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := r.until.Sub(r.now()); left <= 0 && !d.closed {
		d.timer.Reset(soonest)
	} else if !d.closed {
		d.timer.Reset(left + time.Millisecond)
	}
}

// look closes the connections of Runners that may no longer stay by what the agent knows now.
func (h *connTracker) look() {
	h.mu.Lock()
	all := make([]*trackedConn, 0, len(h.open))
	for d := range h.open {
		all = append(all, d)
	}
	h.mu.Unlock()
	for _, d := range all {
		d.look()
	}
}

// watch calls look after each change, until ctx ends.
func (h *connTracker) watch(ctx context.Context, changed func() <-chan struct{}) {
	for {
		next := changed()
		h.look()
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

type trackedKey struct{}

// withTracked is an http.Server.ConnContext.
func withTracked(ctx context.Context, conn net.Conn) context.Context {
	if d := trackedOf(conn); d != nil {
		return context.WithValue(ctx, trackedKey{}, d)
	}
	return ctx
}

// withChains puts the verified chains where net/http expects them: crypto/tls did not verify them.
func withChains(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLeaving(r.Context()) {
			panic(http.ErrAbortHandler)
		}
		if chains := chainsOf(r.Context()); chains != nil && r.TLS != nil {
			state := *r.TLS
			state.VerifiedChains = chains
			r = r.WithContext(r.Context()) // a copy
			r.TLS = &state
		}
		next.ServeHTTP(w, r)
	})
}

func chainsOf(ctx context.Context) [][]*x509.Certificate {
	d, ok := ctx.Value(trackedKey{}).(*trackedConn)
	if !ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runner == nil {
		return nil
	}
	return d.runner.chains
}
