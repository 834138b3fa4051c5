package server

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// CodeAuditUnavailable is the code for a command that cannot be recorded, if the cluster owner's
// policy requires a record before each command.
const CodeAuditUnavailable = runnerapi.Code("audit_unavailable") // 503

// auditWait is how long a command waits for its record to be kept.
const auditWait = 5 * time.Second

// AuditUnavailable returns that refusal.
func AuditUnavailable() *runnerapi.Error {
	return problem.New(http.StatusServiceUnavailable, CodeAuditUnavailable,
		"nothing was carried out: send it again; if it stays so, the agent's log says what keeps its audit log from being written",
		"the customer's policy requires a record of each command before it is carried out (audit: required), and the agent's audit log cannot be written").
		WithRetryAfter(time.Second)
}

// recordFirst keeps the record that a command begins, where the policy requires that. What
// only reads changes nothing, and is not held up.
func (s *server) recordFirst(r *http.Request, call runnerapi.Call, i runnerapi.Intent) error {
	note, ok := r.Context().Value(auditKey{}).(*auditNote)
	if !ok || s.Policy == nil || i.Access == runnerapi.Reads || i.Discovers() || !s.Policy.AuditRequired() {
		return nil
	}
	record, _ := auditRecord(r, call, note, 0, http.Header{}, nil)
	record.Time, record.Outcome = time.Now().UTC(), runnerapi.AuditBegun
	record.Arguments = noteArguments(call, r, note, &record)
	ctx, cancel := context.WithTimeout(r.Context(), auditWait)
	defer cancel()
	if err := s.Audit.Keep(ctx, record); err != nil {
		s.Log.Warn().Err(err).Str("command", i.Command).Str("runner", i.Runner).Msg("command refused: its audit record cannot be kept, and the policy requires one")
		return AuditUnavailable()
	}
	return nil
}
