package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
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

// counted is where a stream writes what it receives, and counts it.
type counted struct {
	io.Writer
	total *atomic.Uint64
	below *socket // nil where there is none
}

var _ mux.Sink = (*counted)(nil)

func newCounted(dst io.Writer, total *atomic.Uint64) *counted {
	c := &counted{Writer: dst, total: total}
	if system, ok := dst.(syscall.Conn); ok {
		c.below = newSocket(system)
	}
	return c
}

// Write implements io.Writer.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.total.Add(uint64(n)) //nolint:gosec // never negative
	return n, err
}

// TryWrite implements mux.Sink.
func (c *counted) TryWrite(p []byte) int {
	if c.below == nil {
		return 0
	}
	n := c.below.tryWrite(p)
	c.total.Add(uint64(n)) //nolint:gosec // never negative
	return n
}

// countedReader is what a stream is filled from.
type countedReader struct {
	io.Reader
	total *atomic.Uint64
}

// Read implements io.Reader.
func (c countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.total.Add(uint64(n)) //nolint:gosec // never negative
	return n, err
}

// pump copies one way, of which one end is a stream: it has what it received in memory of its
// own, and what it sends in front of which there is to be a header. Errors are the usual end of
// a connection.
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) {
	if stream, ok := src.(*link.Stream); ok {
		_, _ = stream.WriteTo(newCounted(dst, total))
		return
	}
	_, _ = io.Copy(dst, countedReader{src, total})
}
