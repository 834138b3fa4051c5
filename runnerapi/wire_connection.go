package runnerapi

import (
	"time"
)

// alpn lists the protocols of this wire, the preferred one first.
var alpn = []string{alpnHTTP2, alpnHTTP1}

const alpnHTTP1 = "http/1.1" // for WebSockets, which HTTP/2 has only in theory (RFC 8441)

const (
	alpnHTTP2 = "h2"
)

const streamWindow = 16 << 20

// The HTTP/2 windows of a client. The protocol's default of 64 KiB makes an answer slow over a long
// distance. The connection's window must be larger than a stream's, or one stream starves the
// others.
const (
	connectionWindow = 64 << 20
)

// followedWindow is the window of a followed stream. A reader that stops reading holds up to its
// window of the connection's window. With this size, as many readers as the agent serves on one
// connection may stop, and the other streams still get through.
const followedWindow = connectionWindow / 256

const maxStreams = 250 // of one connection

const pingAfter = 15 * time.Second

// Pings detect a peer that has disappeared silently within half a minute.
const (
	pingTimeout = 15 * time.Second
)

// refreshProtocol is the ALPN protocol by which the control plane makes an agent request its news at
// once. The handshake is the message, and one byte is the answer.
const refreshProtocol = "pipeops-refresh/1"

const refreshDone = 1
