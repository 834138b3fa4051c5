package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// WantsCA reports whether a ClientHello is that of an agent which holds no CA, and the fingerprint
// of one at most. All others hold the certificates of their CAs, and need not be sent them.
func WantsCA(hello *tls.ClientHelloInfo) bool {
	return slices.Contains(hello.SupportedProtos, link.ALPNSendCA)
}

// beginMarked reads what a stream begins with. Where that is the mark of a call or a proof it does
// what is asked; else it puts it back, for FRP's message.
func (s *session) beginMarked(ctx context.Context, stream *link.Stream) (rest io.Reader, err error) {
	var mark [1]byte
	if _, err := io.ReadFull(stream, mark[:]); err != nil {
		return nil, s.unread(err)
	}
	switch mark[0] {
	case link.CallMark:
		return nil, s.call(stream)
	case link.ProofMark:
		return nil, s.prove(ctx, stream)
	}
	return io.MultiReader(&again{mark[0], false}, stream), nil
}

// again reads one byte.
type again struct {
	b    byte
	read bool
}

func (a *again) Read(p []byte) (int, error) {
	if a.read || len(p) == 0 {
		return 0, io.EOF
	}
	a.read = true
	return copy(p, []byte{a.b}), nil
}

// call hands over a stream that carries a call of the API. Past its share, or when the server
// stops, it is closed, and the agent calls by a separate connection.
func (s *session) call(stream *link.Stream) error {
	if err := s.awaitLogin(); err != nil {
		return err
	}
	if s.server.cfg.Calls == nil {
		return stream.Close()
	}
	leave, ok := s.server.calls.Enter(s.agentID)
	if !ok {
		return stream.Close()
	}
	if !s.calling.enter() {
		leave()
		return stream.Close()
	}
	_ = stream.SetReadDeadline(time.Time{})
	s.server.cfg.Calls(link.NewStream(stream.Stream, func() {
		s.calling.leave()
		leave()
	}), s.proof.state())
	return nil
}

// awaitLogin returns when the login is through: the agent may know a moment before this end does.
func (s *session) awaitLogin() error {
	if !s.loggedIn.Load() {
		return fmt.Errorf("%w: a call before the login", errForeign)
	}
	select {
	case <-s.ready:
		return nil
	case <-s.done:
		return errNoLogin
	}
}

// drainPublic takes no more streams of public traffic, and waits for the open ones: not for long.
// The agent hears of it, and ends each with its next answer.
func (s *session) drainPublic() {
	select {
	case <-s.public.shut():
		return
	default:
	}
	s.work.Go(func() {
		if stream, err := s.mux.OpenStream(); err == nil {
			_ = stream.SetWriteDeadline(time.Now().Add(s.server.cfg.Limits.GoAway))
			_, _ = stream.Write([]byte{link.LeaveMark})
			_ = stream.Close()
		}
	})
	s.public.drain(s.server.cfg.Limits.PublicDrain, s.done)
}

// calls counts a session's calls in progress and can be shut, as link.Gate, though without
// waiting for ever.
type calls struct {
	mu   sync.Mutex
	open int
	idle chan struct{} // once shut: closed when none is in progress
}

func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		return false
	}
	c.open++
	return true
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open--; c.open == 0 && c.idle != nil {
		close(c.idle)
	}
}

func (c *calls) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// shut lets no more in. The answer is closed when all are through.
func (c *calls) shut() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == nil {
		c.idle = make(chan struct{})
		if c.open == 0 {
			close(c.idle)
		}
	}
	return c.idle
}

// drain lets no more in, and waits for those that are in progress: not for long, and not after the
// session's end.
func (c *calls) drain(limit time.Duration, over <-chan struct{}) {
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-c.shut():
	case <-over:
	case <-late.C:
	}
}
