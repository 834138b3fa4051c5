package backend

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

// CodeAuditUnavailable is the code for a command that cannot be recorded, if the cluster owner's
// policy requires a record before each command.
const CodeAuditUnavailable = runnerapi.Code("audit_unavailable") // 503

// AuditUnavailable returns that refusal.
func AuditUnavailable() *runnerapi.Error {
	return problem.New(http.StatusServiceUnavailable, CodeAuditUnavailable,
		"nothing was carried out: send it again; if it stays so, the agent's log says what keeps its audit log from being written",
		"the customer's policy requires a record of each command before it is carried out (audit: required), and the agent's audit log cannot be written").
		WithRetryAfter(time.Second)
}
