package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// relay copies between a Runner and an agent until either ends, then closes both.
func (s *Server) relay(runner, agent net.Conn) {
	s.counts.relays.Add(1)
	defer s.counts.relays.Add(-1)
	hangUp := func() {
		_ = runner.Close()
		_ = agent.Close()
	}
	var back sync.WaitGroup
	back.Go(func() {
		defer hangUp()
		pump(runner, agent, &s.counts.fromAgents)
	})
	pump(agent, runner, &s.counts.toAgents)
	hangUp()
	back.Wait()
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
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) {
	_, _ = io.Copy(counted{dst, total}, src)
}
