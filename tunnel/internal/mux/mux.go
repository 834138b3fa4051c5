// Package mux is the tunnel's multiplexer: many streams over one connection. It speaks
// yamux' protocol (https://github.com/hashicorp/yamux/blob/master/spec.md).
//
// It is there for what that library cannot be made to do (docs/adr/0035): a frame goes from the
// goroutine that writes it into the batch that is sent next, and not through two others; what
// arrives is copied once; and a stream's window grows only where the round trip asks for it, so that
// a reader at full speed does not fill the line for all others.
package mux

import (
	"errors"
	"time"
)

// Config is what both ends must fit each other in. All of it is required but Accept.
type Config struct {
	// KeepAlive is how long after the answer to a ping the next one is sent.
	KeepAlive time.Duration
	// WriteTimeout bounds each write, and the wait for a ping's answer.
	WriteTimeout time.Duration
	// MaxWindow is what one stream may have in flight towards this end, at most, in bytes.
	MaxWindow uint32
	// CloseTimeout frees a stream that was closed here and never is at the other end.
	CloseTimeout time.Duration
	// Accept is given each stream that the other end opens, in the goroutine that reads, which must not
	// be kept waiting: least of all for the session's end, as Close does. It may be nil: AcceptStream
	// then waits for streams, in a goroutine that a session at rest has for that alone.
	Accept func(*Stream)
}

// The ends of sessions and streams. A stream that was closed here has net.ErrClosed, one
// whose deadline has passed os.ErrDeadlineExceeded.
var (
	// ErrSessionClosed is that of a session that was closed at this end.
	ErrSessionClosed = errors.New("session shutdown")
	// ErrKeepAlive is that of a session whose other end is not heard any more.
	ErrKeepAlive = errors.New("keepalive timeout")
	// ErrStreamReset is that of a stream that the other end has given up.
	ErrStreamReset = errors.New("connection reset")
	// ErrGoAway is that of opening a stream to an end that wants no more.
	ErrGoAway = errors.New("the other end takes no more streams")
	// ErrProtocol is that of a session whose other end does not keep the protocol.
	ErrProtocol = errors.New("multiplexer protocol error")

	errExhausted = errors.New("the session has no stream numbers left")
)
