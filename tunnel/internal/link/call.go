package link

import (
	"net"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// Calls of the control plane's API come on streams of their own. An end that does not know
// them ends the session, so both say in the handshake that they do: the newer names of the
// protocol mean the older one, and calls.
const (
	// ALPNCalls is ALPN with calls.
	ALPNCalls = "pipeops-frp/2"
	// SubprotocolCalls is Subprotocol with calls.
	SubprotocolCalls = "pipeops-frp.2"
	// CallMark is the first byte of a stream that carries a call. FRP's messages begin with
	// a letter or a digit.
	CallMark byte = 0
)

// Call is a stream for a call at the end that has opened it. The mark goes with what is
// written first, so that it costs no frame. It has none of the stream's other ways to write,
// which would not know of the mark.
type Call struct {
	net.Conn
	begun bool
}

// NewCall begins a call on a stream on which nothing was said.
func NewCall(s *mux.Stream) *Call { return &Call{Conn: s} }

// Write implements net.Conn. Its first call may not come at the same time as another.
func (c *Call) Write(p []byte) (int, error) {
	if c.begun {
		return c.Conn.Write(p)
	}
	c.begun = true
	n, err := c.Conn.Write(append([]byte{CallMark}, p...))
	return max(n-1, 0), err
}
