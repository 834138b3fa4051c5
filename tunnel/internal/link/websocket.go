package link

import (
	"context"
	"net"

	"github.com/coder/websocket" // small, without dependencies, and with a net.Conn that keeps contexts

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const (
	// WebsocketPath is where the control plane's HTTPS API accepts tunnels.
	WebsocketPath = "/v1/tunnel"
	// Subprotocol names the protocol in the WebSocket's handshake, where ALPN's name is not in an
	// allowed form.
	Subprotocol = "pipeops-frp.1"
	// maxMessage is the largest single write of either end.
	maxMessage = mux.MaxWrite
)

// Websocket is the byte stream on a WebSocket: each write is a message. Close closes at once,
// without the closing handshake, which would have to wait for a dead peer.
type Websocket struct {
	net.Conn
	socket *websocket.Conn
}

// NewWebsocket returns the stream. It lives until it is closed.
func NewWebsocket(socket *websocket.Conn) *Websocket {
	w := &Websocket{Conn: websocket.NetConn(context.Background(), socket, websocket.MessageBinary), socket: socket}
	socket.SetReadLimit(maxMessage)
	return w
}

// Close implements net.Conn.
func (w *Websocket) Close() error { return w.socket.CloseNow() }
