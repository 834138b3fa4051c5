package direct

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// inUse is for how long after a request an endpoint counts as in use.
	inUse = 30 * time.Second
	// stable is how long an endpoint has to answer so that earlier failures do not count.
	stable = 10 * time.Minute
	// maxSuccesses bounds how often in a row an endpoint that fails often has to answer.
	maxSuccesses = 32
	// maxPause bounds the time between two attempts at a host that is not proven, and downPause
	// between two at an endpoint that does not answer.
	maxPause, downPause = 10 * time.Minute, 10 * time.Second
)

// host is a host at its target.
type host struct {
	Host
	target *target
	key    atomic.Pointer[string] // that the agent's cluster presents
	proven atomic.Bool

	// The rest is guarded by target.mu.
	next   time.Time // when it is proven again
	tried  time.Time
	failed int
	reason string // why it is not proven
}

func (h *host) state() (s State, known bool) {
	h.target.mu.Lock()
	defer h.target.mu.Unlock()
	s = State{Host: h.Host, Direct: h.proven.Load() && h.target.link.Load() != nil, Reason: h.reason}
	if h.proven.Load() {
		s.Reason = h.target.reason
	}
	return s, !h.tried.IsZero()
}

// target is an endpoint of an agent. One goroutine looks at it.
type target struct {
	p        *Prober
	endpoint string
	started  bool // guarded by Prober.mu
	gone     chan struct{}
	look     wake.Signal
	used     atomic.Int64         // when a request came, in nanoseconds
	link     atomic.Pointer[link] // nil while the endpoint does not answer

	mu     sync.Mutex
	hosts  map[string]*host
	check  time.Time // when it is tried again
	rose   time.Time
	fell   int // how often it ceased to answer, since it was last stable
	good   int // successes in a row while there is no link
	bad    int // failures in a row
	reason string
}

func newTarget(p *Prober, endpoint string) *target {
	return &target{p: p, endpoint: endpoint, gone: make(chan struct{}), look: wake.New(), hosts: map[string]*host{}}
}

func (t *target) add(h *host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts[h.Name] = h
	t.look.Raise()
}

// remove removes a host, and reports whether the target has no other; then it ends.
func (t *target) remove(h *host) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.hosts, h.Name)
	if len(t.hosts) > 0 {
		return false
	}
	close(t.gone)
	return true
}

func (t *target) host(name string) *host {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hosts[name]
}

// touch notes a request. The first one after a while has the endpoint tried at once.
func (t *target) touch() {
	now := time.Now().UnixNano()
	if now-t.used.Swap(now) > int64(inUse) {
		t.hurry()
	}
}

// hurry has the endpoint tried now.
func (t *target) hurry() {
	t.mu.Lock()
	t.check = time.Time{}
	t.mu.Unlock()
	t.look.Raise()
}

func (t *target) run(ctx context.Context) {
	defer t.fall(t.link.Load(), errors.New("the endpoint is no longer used"))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		pause := t.step(ctx)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.gone:
			cancel()
		case <-t.look:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// step tries the endpoint with a host, if one is due, and returns when to go on.
func (t *target) step(ctx context.Context) time.Duration {
	h, pause := t.due(time.Now())
	if h == nil {
		return pause
	}
	err := t.prove(ctx, h)
	if ctx.Err() != nil {
		return 0
	}
	if t.judge(h, err, time.Now()) {
		t.p.cfg.Changed()
	}
	_, pause = t.due(time.Now())
	return pause
}

// due returns the host with which to try the endpoint now, or when there will be one.
func (t *target) due(now time.Time) (*host, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var next, oldest *host
	for _, h := range t.hosts {
		if next == nil || h.next.Before(next.next) {
			next = h
		}
		if h.proven.Load() && (oldest == nil || h.tried.Before(oldest.tried)) {
			oldest = h
		}
	}
	switch {
	case next == nil:
		return nil, time.Hour
	case !next.next.After(now):
		return next, 0
	case oldest == nil:
		return nil, next.next.Sub(now)
	case !t.check.After(now):
		return oldest, 0
	}
	return nil, min(next.next.Sub(now), t.check.Sub(now))
}

// judge notes what a trial has shown, and reports whether a mode has changed.
func (t *target) judge(h *host, err error, now time.Time) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	timing, was := t.p.cfg.Timing, h.proven.Load()
	changed = h.tried.IsZero()
	h.tried = now
	var silent unreachableError
	switch {
	case err == nil:
		h.proven.Store(true)
		h.failed, h.reason = 0, ""
		h.next = now.Add(proveEvery + rand.N(proveEvery/4)) //nolint:gosec // spreading load needs no secrecy
		changed = t.succeeded(now) || changed || !was
	case was && errors.As(err, &silent): // all hosts of the target: it does not answer
		h.next = now.Add(proveEvery)
		t.bad++
		t.check = now.Add(min(downPause, timing.Check<<min(t.bad-1, 10)))
		changed = t.cut(t.link.Load(), err) || changed
	default:
		h.proven.Store(false)
		h.failed++
		h.reason = err.Error()
		h.next = now.Add(min(maxPause, timing.Again<<min(h.failed-1, 10)))
		t.check = now.Add(timing.Check)
		changed = changed || was
		t.p.cfg.Log.Info().Err(err).Str("host", h.Name).Str("endpoint", t.endpoint).Msg("the host is not reached directly")
	}
	return changed
}

// succeeded notes that the endpoint answered, and reports whether there is a link now.
func (t *target) succeeded(now time.Time) bool {
	timing := t.p.cfg.Timing
	t.bad = 0
	t.check = now.Add(timing.Check)
	if t.link.Load() != nil {
		if now.Sub(time.Unix(0, t.used.Load())) > inUse {
			t.check = now.Add(timing.Idle - rand.N(timing.Idle/4)) //nolint:gosec // spreading load needs no secrecy
		}
		return false
	}
	if t.good++; t.fell > 0 && t.good < min(maxSuccesses, 1<<t.fell) {
		return false
	}
	t.good, t.reason, t.rose = 0, "", now
	t.link.Store(newLink(t))
	t.p.cfg.Log.Info().Str("endpoint", t.endpoint).Msg("the endpoint is proven; routing its hosts directly")
	return true
}

// fall ends a link whose endpoint does not answer.
func (t *target) fall(l *link, err error) {
	t.mu.Lock()
	fell := t.cut(l, err)
	t.mu.Unlock()
	if fell {
		t.hurry()
		t.p.cfg.Changed()
	}
}

// cut ends a link, and reports whether it was in use. It is called with the lock held.
func (t *target) cut(l *link, err error) bool {
	t.good = 0
	if l == nil || !t.link.CompareAndSwap(l, nil) {
		return false
	}
	if time.Since(t.rose) > stable {
		t.fell = 0
	}
	t.fell = min(t.fell+1, 10)
	t.reason = err.Error()
	l.end(err)
	t.p.cfg.Log.Warn().Err(err).Str("endpoint", t.endpoint).Msg("the endpoint does not respond; routing its hosts through the tunnel")
	return true
}
