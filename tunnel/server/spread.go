package server

import (
	"errors"
	"io"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// How agents are asked to spread over time, so that they do not all come at once.
const (
	// loginsPerSecond is the observed rate of one core, with room for other work.
	loginsPerSecond = 500
	// minSpread is for few agents, maxSpread for more than there should be.
	minSpread = time.Second
	maxSpread = 2 * time.Minute
)

// errBusy refuses agents for now. They receive it.
var errBusy = errors.New("the control plane is busy: too many agents connect at a time")

// spread returns the time over which that number of agents must spread their logins.
func spread(agents int) time.Duration {
	return min(max(minSpread, time.Duration(agents)*time.Second/loginsPerSecond), maxSpread)
}

// busy reports whether too many agents are logging in, and the time within which refused agents
// must return. An agent that still waits for its handshake gets no answer, since that would need
// the handshake.
func (s *Server) busy() (within time.Duration, busy bool) {
	n := s.login.Taken()
	return spread(s.wait.Len() + n), n > s.cfg.Limits.Busy
}

// goAway informs the agent that the server stops and when to return, and waits a short time for
// it to hang up.
func (s *session) goAway() {
	s.mu.Lock()
	mux := s.mux
	s.mu.Unlock()
	patience := s.server.cfg.Limits.GoAway
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	said := make(chan struct{})
	go func() {
		defer close(said)
		stream, err := mux.OpenStream()
		if err != nil {
			return
		}
		_ = stream.SetWriteDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(stream, link.Later("the control plane restarts", spread(int(s.server.counts.sessions.Load()))))
		_ = stream.Close()
	}()
	select {
	case <-s.done:
	case <-timeout.C:
		s.kill(errStopping) // which ends all remaining messages
	}
	<-said
}
