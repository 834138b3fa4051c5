package link

import (
	"context"
	"net"

	"github.com/coder/websocket" // small, without dependencies, and with a net.Conn that keeps contexts

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const (
	// WebsocketPath is where the control plane's HTTPS API takes tunnels.
	WebsocketPath = "/v1/tunnel"
	// Subprotocol names the protocol in the websocket's handshake, where ALPN's name has no
	// form that is allowed.
	Subprotocol = "pipeops-frp.1"
	// maxMessage is what either end sends at once.
	maxMessage = mux.MaxWrite
)

// Websocket is the byte stream on a websocket: each write is a message. Its end comes at
// once, without the closing handshake, for which a dead peer would have to be waited for.
type Websocket struct {
	net.Conn
	socket *websocket.Conn
}

// NewWebsocket makes the stream. It lives until it is closed.
func NewWebsocket(socket *websocket.Conn) *Websocket {
	w := &Websocket{Conn: websocket.NetConn(context.Background(), socket, websocket.MessageBinary), socket: socket}
	socket.SetReadLimit(maxMessage)
	return w
}

// Close implements net.Conn.
func (w *Websocket) Close() error { return w.socket.CloseNow() }
