package runnerapi

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"
)

// doors tracks the open connections, so that those of a Runner that may no longer stay can be
// closed.
type doors struct {
	mu   sync.Mutex
	open map[*door]struct{}
}

// door is one connection, below its TLS.
type door struct {
	net.Conn
	house *doors

	mu     sync.Mutex
	runner *runner // nil until a Runner is admitted
	timer  *time.Timer
	closed bool
	nudge  func(context.Context) error // of the control plane's connection

	leaving bool // closed within farewellTime
	streams map[*stream]struct{}
}

// doorListener wraps each accepted connection in a door.
type doorListener struct {
	net.Listener
	house *doors
}

// Accept implements net.Listener.
func (l doorListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	d := &door{Conn: conn, house: l.house}
	l.house.mu.Lock()
	defer l.house.mu.Unlock()
	l.house.open[d] = struct{}{}
	return d, nil
}

// Close implements net.Conn.
func (d *door) Close() error {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.house.mu.Lock()
	delete(d.house.open, d)
	d.house.mu.Unlock()
	return d.Conn.Close()
}

// admit records the admitted Runner until its certificate expires.
func (d *door) admit(r *runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runner = r
	d.arm()
}

// soonest is how often a door is checked whose certificate has expired by the timer's clock but not
// by the agent's.
const soonest = time.Second

// arm schedules a check of the door for when its certificate expires. The lock is held.
func (d *door) arm() {
	if !d.closed {
		d.timer = time.AfterFunc(max(d.runner.until.Sub(d.runner.now()), 0)+time.Millisecond, d.look)
	}
}

// look closes the door if its Runner may no longer stay.
func (d *door) look() {
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
func (d *door) again(r *runner) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := r.until.Sub(r.now()); left <= 0 && !d.closed {
		d.timer.Reset(soonest)
	} else if !d.closed {
		d.timer.Reset(left + time.Millisecond)
	}
}

// look closes the doors of Runners that may no longer stay by what the agent knows now.
func (h *doors) look() {
	h.mu.Lock()
	all := make([]*door, 0, len(h.open))
	for d := range h.open {
		all = append(all, d)
	}
	h.mu.Unlock()
	for _, d := range all {
		d.look()
	}
}

// watch calls look after each change, until ctx ends.
func (h *doors) watch(ctx context.Context, changed func() <-chan struct{}) {
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

type doorKey struct{}

// withDoor returns an http.Server.ConnContext.
func withDoor(ctx context.Context, conn net.Conn) context.Context {
	if d := doorOf(conn); d != nil {
		return context.WithValue(ctx, doorKey{}, d)
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
	d, ok := ctx.Value(doorKey{}).(*door)
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
