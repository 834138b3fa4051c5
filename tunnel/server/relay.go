package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// relay copies between a Runner or a gateway and an agent until both have ended, or either fails.
func (s *Server) relay(near, agent net.Conn) {
	s.counts.relays.Add(1)
	defer s.counts.relays.Add(-1)
	hangUp := func() {
		_ = near.Close()
		_ = agent.Close()
	}
	flow := func(dst, src net.Conn, total *atomic.Uint64) {
		if pump(dst, src, total) != nil || wrapconn.CloseWrite(dst) != nil {
			hangUp()
		}
	}
	var back sync.WaitGroup
	back.Go(func() { flow(near, agent, &s.counts.fromAgents) })
	flow(agent, near, &s.counts.toAgents)
	back.Wait()
	hangUp()
}

// counted counts the bytes that are written.
type counted struct {
	io.Writer
	total *atomic.Uint64
}

// Write implements io.Writer.
func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.total.Add(uint64(n)) //nolint:gosec // never negative
	return n, err
}

// pump copies one way. Errors are the usual end of a connection.
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) error {
	_, err := io.Copy(counted{dst, total}, src)
	return err
}
