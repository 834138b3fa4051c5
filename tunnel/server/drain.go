package server

import (
	"context"
	"fmt"

	"github.com/fatedier/frp/pkg/msg"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// maxDrains is how often an agent may ask to be drained: once, and again if it did not
// wait for the answer.
const maxDrains = 8

// drain lets an agent's replica leave in order. No dial goes to it any more, and the stream that
// requested the drain ends when the pending dials are through. Open connections continue. The
// request is FRP's own message, but not on the control connection: frps would forget the proxy, and
// the agent would not learn that the drain is done.
func (s *session) drain(ctx context.Context, stream *link.Stream, m *msg.CloseProxy) error {
	if s.drains.Add(1) > maxDrains {
		return fmt.Errorf("%w: it asks again and again to be drained", errForeign)
	}
	if !s.loggedIn.Load() {
		return fmt.Errorf("%w: it closes its proxy before the login", errForeign)
	}
	select {
	case <-s.ready: // the agent may know a moment before this end does
	case <-s.done:
		return errNoLogin
	}
	if m.ProxyName != s.replica.proxyName() {
		return fmt.Errorf("%w: it closes %q", errForeign, m.ProxyName)
	}
	s.drainOnce.Do(func() {
		s.server.agents.drain(s)
		s.dials.shut()
		s.log.Info().Msg("draining agent's tunnel")
		ctx, cancel := context.WithTimeout(ctx, s.server.cfg.Limits.DialTimeout)
		defer cancel()
		s.dials.wait(ctx)
	})
	return stream.Close()
}

func (s *session) isReady() bool { return isClosed(s.ready) }
func (s *session) isDone() bool  { return isClosed(s.done) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
