package audit

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// auditWait is how long a command waits for its record to be kept.
const auditWait = 5 * time.Second

// KeepFirst keeps the record that a command begins, where the policy requires that. What
// only reads changes nothing, and is not held up.
func (l *Log) KeepFirst(r *http.Request, call runnerapi.Call, i runnerapi.Intent) error {
	note, ok := r.Context().Value(auditKey{}).(*Note)
	if i.Access == runnerapi.Reads || i.Discovers() || !l.Policy.AuditRequired() {
		return nil
	}
	if !ok { // there is no audit log
		return backend.AuditUnavailable()
	}
	record, _ := Record(r, call, note, 0, http.Header{}, nil)
	record.Time, record.Outcome = time.Now().UTC(), runnerapi.AuditBegun
	record.Arguments = Arguments(call, r, note, &record)
	ctx, cancel := context.WithTimeout(r.Context(), auditWait)
	defer cancel()
	if err := l.Auditor.Keep(ctx, record); err != nil {
		l.Logger.Warn().Err(err).Str("command", i.Command).Str("runner", i.Runner).Msg("command refused: its audit record cannot be written, and the policy requires one")
		return backend.AuditUnavailable()
	}
	return nil
}
