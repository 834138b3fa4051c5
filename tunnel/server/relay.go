package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
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

// counted counts what is written.
type counted struct {
	io.Writer
	total *atomic.Uint64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.total.Add(uint64(n)) //nolint:gosec // never negative
	return n, err
}

// pump copies one way. Its errors are the usual end of a connection.
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) {
	if stream, ok := src.(*link.Stream); ok { // it has what it received in memory of its own
		_, _ = stream.WriteTo(counted{dst, total})
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
