package audit

import (
	"context"
	"errors"
	"net/http"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Append writes a record of what the owner did with a program, and returns once it is stored. err
// is why it failed; nil if it did not. Batches are claimed by number, so any process may append.
func Append(ctx context.Context, s Store, program string, r runnerapi.AuditRecord, err error) error {
	r.Runner, r.Replica, r.Outcome = runnerapi.AuditOwner, program, runnerapi.AuditDone
	if err != nil {
		r.Outcome = runnerapi.AuditFailed
		if p, ok := errors.AsType[*problem.Error](err); ok {
			r.Code, r.Status = p.Code, p.Status
			if p.Status < http.StatusInternalServerError {
				r.Outcome = runnerapi.AuditRefused
			}
		}
	}
	l := New(s, program, zerolog.Nop())
	return l.write(ctx, []runnerapi.AuditRecord{r})
}
