package tunnel

import (
	"context"
	"net"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Way is how a tunnel reaches the control plane.
type Way string

// TCP is TLS on a connection to the tunnel's own port.
const TCP Way = "tcp"

// line is an established and authenticated connection to the control plane.
type line struct {
	net.Conn
	below *link.Socket // of its TLS
	way   Way
}

// connect makes the connection.
func (t *Tunnel) connect(ctx context.Context) (*line, error) { return t.connectTCP(ctx) }
