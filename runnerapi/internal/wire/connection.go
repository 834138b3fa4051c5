package wire

import (
	"time"
)

// ALPN lists the protocols of this wire, the preferred one first.
var ALPN = []string{HTTP2, HTTP1}

// The protocols of this wire, as TLS negotiates them (RFC 7301).
const (
	HTTP2 = "h2"
	HTTP1 = "http/1.1" // for WebSockets, which HTTP/2 has only in theory (RFC 8441)
)

// The HTTP/2 windows of a client. The protocol's default of 64 KiB makes an answer slow over a long
// distance. The connection's window must be larger than a stream's, or one stream starves the
// others.
const (
	StreamWindow     = 16 << 20
	ConnectionWindow = 64 << 20
)

// FollowedWindow is the window of a followed stream. A reader that stops reading holds up to its
// window of the connection's window. With this size, as many readers as the agent serves on one
// connection may stop, and the other streams still get through.
const FollowedWindow = ConnectionWindow / 256

// MaxStreams bounds the HTTP/2 streams of one connection.
const MaxStreams = 250

// Pings detect a peer that has disappeared silently within half a minute.
const (
	PingAfter   = 15 * time.Second
	PingTimeout = 15 * time.Second
)

// RefreshProtocol is the ALPN protocol by which the control plane makes an agent request its news
// at once. The handshake is the message, and one byte is the answer.
const RefreshProtocol = "pipeops-refresh/1"

// RefreshDone is that byte.
const RefreshDone = 1
