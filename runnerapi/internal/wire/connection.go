package wire

import (
	"time"
)

// ALPN lists the protocols of this wire, the preferred one first.
var ALPN = []string{HTTP2, HTTP1}

const HTTP1 = "http/1.1" // for WebSockets, which HTTP/2 has only in theory (RFC 8441)

const (
	HTTP2 = "h2"
)

const StreamWindow = 16 << 20

// The HTTP/2 windows of a client. The protocol's default of 64 KiB makes an answer slow over a long
// distance. The connection's window must be larger than a stream's, or one stream starves the
// others.
const (
	ConnectionWindow = 64 << 20
)

// FollowedWindow is the window of a followed stream. A reader that stops reading holds up to its
// window of the connection's window. With this size, as many readers as the agent serves on one
// connection may stop, and the other streams still get through.
const FollowedWindow = ConnectionWindow / 256

const MaxStreams = 250 // of one connection

const PingAfter = 15 * time.Second

// Pings detect a peer that has disappeared silently within half a minute.
const (
	PingTimeout = 15 * time.Second
)

// RefreshProtocol is the ALPN protocol by which the control plane makes an agent request its news at
// once. The handshake is the message, and one byte is the answer.
const RefreshProtocol = "pipeops-refresh/1"

const RefreshDone = 1
