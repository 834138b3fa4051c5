// Package link is what both ends of the tunnel must agree on: the multiplexer's settings,
// the names in FRP's messages, the refusals, and the one place where frp's global logger
// is tamed. It is not for anything that only one end needs.
package link

import (
	"io"
	"log"
	"net"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/rs/zerolog"
)

const (
	// ALPN names the protocol in the TLS handshake.
	ALPN = "pipeops-frp/1"

	// keepAlive and writeTimeout together bound how long a half-open connection goes
	// unnoticed: a ping every 5 s, answered within 9 s, is 14 s at worst.
	keepAlive    = 5 * time.Second
	writeTimeout = 9 * time.Second

	// window is what one stream may have in flight. The other end hears of room when half
	// of it is there again, so at 40 ms round trip 24 MiB allow about 300 MB/s; yamux' own
	// 256 KiB would allow 3.
	window = 24 << 20

	// closeTimeout frees a stream whose other end never closes.
	closeTimeout = time.Minute
)

// Client and Server start a multiplexer session on an established connection. Below is
// what its TLS writes to, nil where that is not known.
func Client(conn net.Conn, below *Socket, lg zerolog.Logger) (*yamux.Session, error) {
	return yamux.Client(newBatch(conn, below), muxConfig(lg))
}

// Server is the accepting side's Client.
func Server(conn net.Conn, below *Socket, lg zerolog.Logger) (*yamux.Session, error) {
	return yamux.Server(newBatch(conn, below), muxConfig(lg))
}

func muxConfig(lg zerolog.Logger) *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.KeepAliveInterval = keepAlive
	cfg.ConnectionWriteTimeout = writeTimeout
	cfg.MaxStreamWindowSize = window
	cfg.StreamCloseTimeout = closeTimeout
	cfg.LogOutput = nil
	cfg.Logger = log.New(debugWriter{lg}, "", 0)
	return cfg
}

// debugWriter makes a library's printed lines debug events: what matters in them reaches
// the caller as an error anyway.
type debugWriter struct{ log zerolog.Logger }

var _ io.Writer = debugWriter{}

func (w debugWriter) Write(p []byte) (int, error) {
	w.log.Debug().Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
