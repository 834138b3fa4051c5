package runnerapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// ExecCall is the ID of the call that runs a command in a container.
const ExecCall = "exec-app"

// The codes of sessions that the cluster owner's policy has recorded.
const (
	// CodeRecordingUnavailable is for a session that cannot be recorded.
	CodeRecordingUnavailable = Code("recording_unavailable") // 503
	// CodeRecordingFull is for a session that ended because its recording reached its bound.
	CodeRecordingFull = Code("recording_full") // 409
)

// recordingHeader names the recording of a session to its caller.
const recordingHeader = "Recording-Id"

// Recorder records exec sessions for the cluster's owner.
type Recorder interface {
	// Begin stores the beginning of a recording.
	Begin(context.Context, Session) (Recording, error)
}

// Session describes a session that is recorded.
type Session struct {
	Runner, RequestID, Namespace, Name string
	TTY                                bool
}

// Recording is the recording of one session. It contains no input: that has passwords which a
// terminal does not show.
type Recording interface {
	ID() string
	// Output returns a writer that records a stream of the session. It fails when the session
	// cannot be recorded any further.
	Output() io.Writer
	// Resize records a size of the terminal.
	Resize(TerminalSize)
	// Run stores what is recorded, until ctx ends and all is stored. It returns earlier, with an
	// error, when the session cannot be recorded any further.
	Run(ctx context.Context) error
	// Close releases the recording, whether or not Run was called.
	Close()
}

// RecordingFull returns the error for a session whose recording has reached a bound.
func RecordingFull(size int64, duration time.Duration) *Error {
	return problem.New(http.StatusConflict, CodeRecordingFull,
		"begin another session; send much output elsewhere, to a file or to the App's log",
		"the customer's policy has sessions recorded, and a recording has at most %d MiB and %s: the session was ended", size>>20, duration)
}

// recordingUnavailable returns the error for a session that cannot be recorded. The reason is in
// the agent's log.
func recordingUnavailable() *Error {
	return problem.New(http.StatusServiceUnavailable, CodeRecordingUnavailable,
		"try again; if it stays so, the owner of the cluster sees the reason in the agent's log, and makes room by `pipeops-agent recordings delete ID`",
		"the customer's policy has sessions recorded, and the agent cannot record this one").
		WithRetryAfter(time.Second)
}
