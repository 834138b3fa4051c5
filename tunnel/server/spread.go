package server

import (
	"errors"
	"io"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// How agents are asked to spread over time, so that they do not all come at once.
const (
	// loginsPerSecond is what one core has been seen to do, with room for other work.
	loginsPerSecond = 500
	// minSpread is for few agents, maxSpread for more than there should be.
	minSpread = time.Second
	maxSpread = 2 * time.Minute
)

// errBusy refuses agents for now. It is told to them.
var errBusy = errors.New("the control plane is busy: too many agents connect at a time")

// spread is the time that so many agents are to take to come.
func spread(agents int) time.Duration {
	return min(max(minSpread, time.Duration(agents)*time.Second/loginsPerSecond), maxSpread)
}

// busy says whether more agents are logging in than there should be, and in what time those
// are to come again that are sent away. Whoever waits for the handshake before that is not
// told: that would take the handshake.
func (s *Server) busy() (within time.Duration, busy bool) {
	n := s.login.Taken()
	return spread(s.wait.Len() + n), n > s.cfg.Limits.Busy
}

// farewell tells the agent that the server stops and when to come again, and waits until
// it has hung up, though not for long.
func (s *session) farewell() {
	s.mu.Lock()
	mux := s.mux
	s.mu.Unlock()
	patience := s.server.cfg.Limits.Farewell
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
		s.kill(errStopping) // which ends what may still be said
	}
	<-said
}
