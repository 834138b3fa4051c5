package runnerapi

import (
	"time"
)

// LogOptions select log lines.
type LogOptions struct {
	Follow    bool
	Tail      int           // last lines per pod; negative for all
	Since     time.Duration // no older than this; 0 for all
	Previous  bool          // of the run before the last restart
	Container string        // empty for the App's own container
	Grep      string        // only lines with this text in them; empty for all
	UntilDone bool          // Follow ends when a Job or Pipeline has ended
}

// LogLine is one line of one container.
type LogLine struct {
	Time time.Time `json:"time,omitzero"`
	Pod  string    `json:"pod"`
	Line string    `json:"line"`
	// Request is set in an access log, where Pod is the agent's.
	Request *AccessEntry `json:"request,omitempty" doc:"Of a line of an access log alone. Its pod is the agent's."`
}

// Media types of a log.
const (
	NDJSON    = "application/x-ndjson"
	PlainText = "text/plain; charset=utf-8"
)

// LogError is the last line of a log that broke off.
type LogError struct {
	Error Error `json:"error"`
}

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"
