// Package link is what both ends of the tunnel must agree on: the multiplexer's settings, the names
// in FRP's messages, the refusals, and the one place that sets frp's global logger. It excludes
// what only one end needs.
package link

import (
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const (
	// ALPN names the protocol in the TLS handshake.
	ALPN = "pipeops-frp/1"
	// ALPNSendCA is offered beside ALPN by a client that holds no CA, and a fingerprint of one at
	// most: the server sends its CA's certificate too. It is never chosen.
	ALPNSendCA = "pipeops-send-ca/1"

	// keepAlive and writeTimeout together bound how long a half-open connection goes
	// unnoticed: a ping every 5 s, answered within 9 s, is 14 s at worst.
	keepAlive    = 5 * time.Second
	writeTimeout = 9 * time.Second

	// window is what one stream may have in flight, where the round trip is long enough to
	// need it. The other end hears of room when half of it is there again, so at 40 ms 24 MiB
	// allow about 300 MB/s; yamux' own 256 KiB would allow 3.
	window = 24 << 20

	// closeTimeout frees a stream whose other end never closes.
	closeTimeout = time.Minute
)

// Client starts a multiplexer session on an established connection. Below is the socket to which
// its TLS writes, nil if that is unknown. For accept see mux.Config.Accept.
func Client(conn net.Conn, below *Socket, accept func(*mux.Stream)) *mux.Session {
	return mux.Client(conn, below.corked(), muxConfig(accept))
}

// Server returns the accepting side's Client. The caller reads the session: mux.Session.Serve.
func Server(conn net.Conn, below *Socket, accept func(*mux.Stream)) *mux.Session {
	return mux.Server(conn, below.corked(), muxConfig(accept))
}

func muxConfig(accept func(*mux.Stream)) mux.Config {
	return mux.Config{KeepAlive: keepAlive, WriteTimeout: writeTimeout, MaxWindow: window, CloseTimeout: closeTimeout, Accept: accept}
}
