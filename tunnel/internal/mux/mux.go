// Package mux is the tunnel's multiplexer: many streams over one connection. It speaks yamux'
// protocol (https://github.com/hashicorp/yamux/blob/master/spec.md).
//
// It exists for what that library cannot do (docs/adr/0035). A frame goes from the goroutine that
// writes it into the next batch, and not through two others. Received data is copied once. A
// stream's window grows only if the round trip needs that, so a reader at full speed does not fill
// the line for all others.
package mux

import (
	"errors"
	"time"
)

// Config contains the settings in which both ends must match. All of them are required but Accept.
type Config struct {
	// KeepAlive is the time from the answer to a ping until the next ping.
	KeepAlive time.Duration
	// WriteTimeout bounds each write, and the wait for a ping's answer.
	WriteTimeout time.Duration
	// MaxWindow is how much one stream may have in flight towards this end, in bytes.
	MaxWindow uint32
	// CloseTimeout frees a stream that was closed here and not at the other end.
	CloseTimeout time.Duration
	// Accept is called with each stream that the other end opens, in the goroutine that reads. It
	// must not block, and in particular not wait for the session's end, as Close does. If it is
	// nil, streams of the other end are refused.
	Accept func(*Stream)
}

// The errors of sessions and streams that have ended. A stream that was closed here returns
// net.ErrClosed, and one whose deadline has passed os.ErrDeadlineExceeded.
var (
	// ErrSessionClosed is returned after a session was closed at this end.
	ErrSessionClosed = errors.New("session shutdown")
	// ErrKeepAlive is returned after the other end of a session stopped responding.
	ErrKeepAlive = errors.New("keepalive timeout")
	// ErrStreamReset is returned after the other end has reset the stream.
	ErrStreamReset = errors.New("connection reset")
	// ErrGoAway is returned for a new stream to an end that accepts no more.
	ErrGoAway = errors.New("the peer accepts no more streams")
	// ErrProtocol is returned after the other end of a session broke the protocol.
	ErrProtocol = errors.New("multiplexer protocol error")

	errExhausted = errors.New("the session has no stream numbers left")
)
