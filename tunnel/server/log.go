package server

import (
	"net"

	"github.com/rs/zerolog"
)

// sessionLog adds the session to each log line. A zerolog logger with these fields would
// permanently take 500 bytes.
type sessionLog struct {
	to      *zerolog.Logger
	agentID string
	raw     net.Conn
}

// Debug begins a line.
func (l sessionLog) Debug() *zerolog.Event { return l.of(l.to.Debug()) }

// Info begins a line.
func (l sessionLog) Info() *zerolog.Event { return l.of(l.to.Info()) }

// Warn begins a line.
func (l sessionLog) Warn() *zerolog.Event { return l.of(l.to.Warn()) }

func (l sessionLog) of(e *zerolog.Event) *zerolog.Event {
	return e.Str("agent_id", l.agentID).Stringer("remote", l.raw.RemoteAddr())
}
