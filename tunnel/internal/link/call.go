package link

import (
	"net"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// ALPNProof is the protocol for the proof of another certificate inside a session. Agents must
// never offer it anywhere else.
const ALPNProof = "pipeops-proof/1"

// The first byte of a stream that is not FRP's, whose messages begin with a letter or a digit.
const (
	// CallMark begins a call.
	CallMark byte = 0
	// ProofMark begins a proof, and is also its answer.
	ProofMark byte = 1
	// PublicMark begins a stream of public traffic. The server opens it.
	PublicMark byte = 2
	// LeaveMark announces that the server stops: each answer to a request of the public is to
	// be the last one of its stream. The server sends it alone.
	LeaveMark byte = 3
)

// Marked is a stream at the end that has opened it. The mark is sent with the first write, so that
// it needs no frame. Marked hides the stream's other ways to write, which would omit the mark.
type Marked struct {
	net.Conn
	mark  byte
	begun bool
}

// NewMarked wraps a stream on which nothing was sent.
func NewMarked(s net.Conn, mark byte) *Marked { return &Marked{Conn: s, mark: mark} }

// CloseWrite ends what is sent.
func (c *Marked) CloseWrite() error { return wrapconn.Conn{Conn: c.Conn}.CloseWrite() }

// Write implements net.Conn. Its first call may not run concurrently with another.
func (c *Marked) Write(p []byte) (int, error) {
	if c.begun {
		return c.Conn.Write(p)
	}
	c.begun = true
	n, err := c.Conn.Write(append([]byte{c.mark}, p...))
	return max(n-1, 0), err
}
