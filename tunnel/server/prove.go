package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// proveEvery is the interval at which a session's agent may try to prove another certificate: a
// handshake is expensive, and here it does not wait for its turn.
const proveEvery = 10 * time.Second

// proof is what a session's agent has proven: the certificate that its connection began with, or a
// newer one.
type proof struct {
	first func() tls.ConnectionState
	newer atomic.Pointer[tls.ConnectionState]

	proving sync.Mutex // held during a handshake
	begun   time.Time  // the last handshake
}

// state returns the TLS state that the agent has proven last.
func (p *proof) state() tls.ConnectionState {
	if newer := p.newer.Load(); newer != nil {
		return *newer
	}
	return p.first()
}

// begin reports whether the agent may try another proof now. If so, end must be called after it.
func (p *proof) begin() (end func(), ok bool) {
	if !p.proving.TryLock() {
		return nil, false
	}
	if !p.begun.IsZero() && time.Since(p.begun) < proveEvery {
		p.proving.Unlock()
		return nil, false
	}
	p.begun = time.Now()
	return p.proving.Unlock, true
}

// prove lets the session's agent prove another certificate, such as a renewed one, in a TLS
// handshake inside the session. The agent's calls use that certificate from then on. The handshake
// has its own protocol name, which agents offer nowhere else. So an attacker with an agent's
// old key, and a session made with it, cannot relay a handshake that the agent makes for another
// purpose.
func (s *session) prove(ctx context.Context, stream *link.Stream) error {
	if err := s.awaitLogin(); err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	end, ok := s.proof.begin()
	if !ok {
		return nil
	}
	defer end()
	timeout := s.server.cfg.Limits.HandshakeTimeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn := tls.Server(stream, s.server.proofs)
	if err := conn.HandshakeContext(ctx); err != nil {
		s.log.Debug().Err(err).Msg("agent failed to prove possession of another certificate")
		return nil
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != link.ALPNProof || len(state.VerifiedChains) == 0 {
		return fmt.Errorf("%w: a proof of nothing", errForeign)
	}
	id, err := s.server.cfg.Identify(state)
	if err != nil {
		s.log.Debug().Err(err).Msg("agent proved a certificate that is not accepted")
		return nil
	}
	if id != s.agentID {
		return fmt.Errorf("%w: it proves to be %q", errForeign, id)
	}
	s.proof.newer.Store(&state)
	_ = stream.SetDeadline(time.Now().Add(timeout))
	_, err = conn.Write([]byte{link.ProofMark}) // the agent is done before this end has checked it
	return err
}
