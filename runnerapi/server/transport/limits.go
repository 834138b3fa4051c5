package transport

import (
	"cmp"
	"time"
)

// Limits bounds what Runners can use of an agent. Behind the tunnel a peer is identified by its
// certificate, so a Runner is one peer from all of its addresses. Zero values select the defaults,
// which are far beyond what a busy Runner does.
type Limits struct {
	// Connections at a time, in total and per Runner (1024, 512).
	Connections, ConnectionsPerRunner int
	// Handshakes are connections that have sent no request yet (256). Beyond that, the one that has
	// waited longest is closed.
	Handshakes int
	// Calls at a time, including waits and followed logs, in total and per Runner (2048, 1024).
	Calls, CallsPerRunner int
	// Bodies of more than 64 KiB at a time, in total and per Runner (8, 4). The agent holds them
	// in memory, of which it has little.
	Bodies, BodiesPerRunner int
	// Streams of the Kubernetes API at a time, in total and per Runner (256, 128). Each uses a
	// connection to the API server.
	Streams, StreamsPerRunner int
	// Stall is how long a connection, or a followed log, may read nothing of what it is sent (1
	// min).
	Stall time.Duration
}

// WithDefaults returns the limits with the defaults where they are zero.
func (l Limits) WithDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, 1024)
	l.ConnectionsPerRunner = cmp.Or(l.ConnectionsPerRunner, 512)
	l.Handshakes = cmp.Or(l.Handshakes, 256)
	l.Calls = cmp.Or(l.Calls, 2048)
	l.CallsPerRunner = cmp.Or(l.CallsPerRunner, 1024)
	l.Bodies = cmp.Or(l.Bodies, 8)
	l.BodiesPerRunner = cmp.Or(l.BodiesPerRunner, 4)
	l.Streams = cmp.Or(l.Streams, 256)
	l.StreamsPerRunner = cmp.Or(l.StreamsPerRunner, 128)
	l.Stall = cmp.Or(l.Stall, time.Minute)
	return l
}
