package runnerapi

import (
	"context"
	"io"
)

// Execution runs the command until it ends, and returns its exit code. It ends early with ctx. Its
// input must end with ctx too.
type Execution func(ctx context.Context, streams ExecStreams) (exitCode int, err error)

// Forwarding carries bytes between conn and the port until both sides have ended
// theirs, or ctx has. It closes conn.
type Forwarding func(ctx context.Context, conn HalfCloser) error

// HalfCloser is a connection that can close one direction, like a TCP connection.
type HalfCloser interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// ExecOptions describe the command, and where to run it.
type ExecOptions struct {
	Command   []string // program and arguments; no shell takes them apart
	Pod       string   // empty for the newest that is ready
	Container string   // empty for the App's own
	Stdin     bool     // the command reads what the caller sends
	TTY       bool     // with a terminal: what it writes comes as one stream
}

// ExecStreams are a command's. Nil if there is none.
type ExecStreams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize are the sizes of the terminal, the first at the start. It is closed at
	// the end.
	Resize <-chan TerminalSize
	// Recorded is called by Client.Exec with the ID of the recording, before any output, if the
	// cluster's owner has the session recorded. It may be nil.
	Recorded func(recording string)
}

// TerminalSize is in characters. Its JSON is that of Kubernetes' resize channel.
type TerminalSize struct {
	Width, Height uint16
}

// PortForwardOptions describe which port.
type PortForwardOptions struct {
	Port int    // of the pod
	Pod  string // empty for the newest that is ready
}

// CodeRecordingUnavailable is for a session that cannot be recorded.
const CodeRecordingUnavailable = Code("recording_unavailable") // 503

// The codes of sessions that the cluster owner's policy has recorded.
const (
	// CodeRecordingFull is for a session that ended because its recording reached its bound.
	CodeRecordingFull = Code("recording_full") // 409
)

// RecordingHeader names the recording of a session to its caller.
const RecordingHeader = "Recording-Id"
