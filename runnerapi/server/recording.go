package server

import (
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// RecordingFull returns the error for a session whose recording has reached a bound.
func RecordingFull(size int64, duration time.Duration) *runnerapi.Error {
	return problem.New(http.StatusConflict, runnerapi.CodeRecordingFull,
		"begin another session; send much output elsewhere, to a file or to the App's log",
		"the customer's policy has sessions recorded, and a recording has at most %d MiB and %s: the session was ended", size>>20, duration)
}

// recordingUnavailable returns the error for a session that cannot be recorded. The reason is in
// the agent's log.
func recordingUnavailable() *runnerapi.Error {
	return problem.New(http.StatusServiceUnavailable, runnerapi.CodeRecordingUnavailable,
		"try again; if it stays so, the owner of the cluster sees the reason in the agent's log, and makes room by `pipeops-agent recordings delete ID`",
		"the customer's policy has sessions recorded, and the agent cannot record this one").
		WithRetryAfter(time.Second)
}
