package link

import (
	"net"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// ALPNProof names what is spoken where an agent proves another certificate, inside a session.
// Nobody may ever offer it anywhere else.
const ALPNProof = "pipeops-proof/1"

// The first byte of a stream that is not FRP's, whose messages begin with a letter or a digit.
const (
	// CallMark begins a call.
	CallMark byte = 0
	// ProofMark begins a proof, and is the answer to it.
	ProofMark byte = 1
)

// Marked is a stream at the end that has opened it. The mark goes with what is written first,
// so that it costs no frame. It has none of the stream's other ways to write, which would not
// know of the mark.
type Marked struct {
	net.Conn
	mark  byte
	begun bool
}

// NewMarked begins a stream on which nothing was said.
func NewMarked(s *mux.Stream, mark byte) *Marked { return &Marked{Conn: s, mark: mark} }

// Write implements net.Conn. Its first call may not come at the same time as another.
func (c *Marked) Write(p []byte) (int, error) {
	if c.begun {
		return c.Conn.Write(p)
	}
	c.begun = true
	n, err := c.Conn.Write(append([]byte{c.mark}, p...))
	return max(n-1, 0), err
}
