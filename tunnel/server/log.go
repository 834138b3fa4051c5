package server

import (
	"net"

	"github.com/rs/zerolog"
)

// sessionLog says with each line whose session it is. A logger of zerolog's that knows has 500 bytes for
// that all the time.
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
