package tunnel

import (
	"context"
	"slices"
	"time"
)

// member is one tunnel of a Set.
type member struct {
	*Tunnel
	at      Endpoint
	stop    context.CancelFunc
	leaving bool // guarded by the Set's lock
}

func (m *member) isUp() bool { return m.Status().Phase == Connected }

// Run keeps the tunnels up until ctx ends, then closes them, waits for its goroutines and returns
// nil. It may be called only once.
func (s *Set) Run(ctx context.Context) error {
	defer s.running.Wait()
	for {
		again := time.NewTimer(s.arrange(ctx))
		select {
		case <-ctx.Done():
		case <-s.look:
		case <-again.C:
		}
		again.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// arrange creates missing tunnels and ends those that are not needed. It returns the longest time
// until the next check.
func (s *Set) arrange(ctx context.Context) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := time.Hour
	if s.draining || ctx.Err() != nil {
		return again
	}
	for _, e := range s.wanted {
		s.begin(ctx, e)
	}
	if !s.up {
		// The named servers are unreachable, and the names may be outdated: try the fallback as
		// well.
		if again = s.cfg.FallbackAfter - time.Since(s.since); again <= 0 {
			s.begin(ctx, s.fallback)
			again = time.Hour
		}
	}
	missing := len(s.wanted)
	for _, e := range s.wanted {
		if m := s.find(e); m != nil && m.isUp() {
			missing--
		}
	}
	for _, m := range slices.Backward(s.members) {
		switch {
		case m.leaving || slices.Contains(s.wanted, m.at):
		case m.isUp() && missing > 0:
			missing-- // as long as another one is not up, this one is better than none
		case !s.up && m.at == s.fallback:
		default:
			s.leave(ctx, m)
		}
	}
	return again
}

// begin creates the tunnel to an endpoint, unless there is one. The lock is held.
func (s *Set) begin(ctx context.Context, e Endpoint) {
	if s.find(e) != nil {
		return
	}
	cfg := s.cfg.Config
	cfg.ServerAddress, cfg.ServerName = e.Address, e.ServerName
	if slices.ContainsFunc(s.members, func(m *member) bool { return !m.leaving && m.cfg.Websocket != "" }) {
		// A WebSocket leads to an arbitrary server: two tunnels of this set could reach the same
		// one, and take over from each other.
		cfg.Websocket = ""
	}
	cfg.Log = cfg.Log.With().Str("node", e.Address).Logger()
	t, err := New(cfg)
	if err != nil { // it was checked before
		cfg.Log.Error().Err(err).Msg("failed to set up a tunnel to this node")
		return
	}
	t.listener, t.public, t.status.notify = s.listener, s.public, s.changed
	ctx, stop := context.WithCancel(ctx)
	m := &member{Tunnel: t, at: e, stop: stop}
	s.members = append(s.members, m)
	s.running.Go(func() { s.keep(ctx, m) })
}

// keep runs a tunnel until it is left.
func (s *Set) keep(ctx context.Context, m *member) {
	defer s.forget(m)
	for {
		s.mu.Lock()
		retried := s.retried
		s.mu.Unlock()
		err := m.Run(ctx)
		if ctx.Err() != nil || err == nil {
			return
		}
		s.cfg.Refused(m.at, err)
		pause := time.NewTimer(s.cfg.RefusedPause)
		select {
		case <-ctx.Done():
		case <-retried:
		case <-pause.C:
		}
		pause.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (s *Set) forget(m *member) {
	m.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
	s.changedLocked()
}

// leave ends a tunnel. If nothing can be connected through it, it ends at once. Otherwise the
// server is asked for no more connections, and open ones get time to finish. The lock is held.
func (s *Set) leave(ctx context.Context, m *member) {
	m.leaving = true
	defer s.changedLocked()
	if !m.isUp() {
		m.stop()
		return
	}
	m.cfg.Log.Info().Msg("leaving the tunnel: the control plane named other nodes")
	s.running.Go(func() { m.leave(ctx, s.cfg.Leave) })
	crowd := 0
	for _, other := range slices.Backward(s.members) {
		if other.leaving {
			crowd++
		}
		if crowd > maxLeaving {
			other.stop()
			break
		}
	}
}

func (m *member) leave(ctx context.Context, within time.Duration) {
	defer m.stop()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := m.Drain(ctx); err != nil && ctx.Err() == nil {
		m.cfg.Log.Debug().Err(err).Msg("the node may still route Runners here")
	}
	for changed := m.Changed(); m.isUp(); changed = m.Changed() {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
