package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// proveEvery is the interval at which a session's agent may try to prove another certificate: a
// handshake is expensive, and here it does not wait for its turn.
const proveEvery = 10 * time.Second

// prove lets the session's agent prove another certificate, such as a renewed one, in a TLS
// handshake inside the session. The agent's calls use that certificate from then on. The handshake
// has a protocol name of its own, which agents offer nowhere else. So an attacker with an agent's
// old key, and a session made with it, cannot relay a handshake that the agent makes for another
// purpose.
func (s *session) prove(ctx context.Context, stream *link.Stream) error {
	if err := s.awaitLogin(); err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	if !s.proving.TryLock() {
		return nil
	}
	defer s.proving.Unlock()
	if !s.proved.IsZero() && time.Since(s.proved) < proveEvery {
		return nil
	}
	s.proved = time.Now()
	timeout := s.server.cfg.Limits.HandshakeTimeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn := tls.Server(stream, s.server.proofs)
	if err := conn.HandshakeContext(ctx); err != nil {
		s.log.Debug().Err(err).Msg("agent did not prove another certificate")
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
	s.newer.Store(&state)
	_ = stream.SetDeadline(time.Now().Add(timeout))
	_, err = conn.Write([]byte{link.ProofMark}) // the agent is done before this end has checked it
	return err
}

// proven returns the TLS state that the session's agent has proven last.
func (s *session) proven() tls.ConnectionState {
	if newer := s.newer.Load(); newer != nil {
		return *newer
	}
	return s.proof.state()
}
