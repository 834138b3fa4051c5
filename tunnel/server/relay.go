package server

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// relayBuffer holds two TLS records; larger ones were measured to bring nothing.
const relayBuffer = 32 << 10

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

// pump copies one way. Its errors are the usual end of a connection.
func pump(dst io.Writer, src io.Reader, total *atomic.Uint64) {
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
