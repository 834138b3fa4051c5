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

// relayBuffer is, with the frame's header, two TLS records of the tunnel; larger ones were
// measured to bring nothing.
const relayBuffer = 32<<10 - 12

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

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

// pump copies one way. Its errors are the usual end of a connection.
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) {
	if stream, ok := src.(*link.Stream); ok { // it has what it received in memory of its own
		_, _ = stream.WriteTo(newCounted(dst, total))
		return
	}
	buffer := relayBuffers.Get().(*[relayBuffer]byte)
	defer relayBuffers.Put(buffer)
	for {
		n, err := src.Read(buffer[:])
		if n > 0 {
			total.Add(uint64(n))
			if _, werr := dst.Write(buffer[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
