package audit

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// NoteProblem records the error, if the answer does not contain it in our form.
func NoteProblem(ctx context.Context, e *runnerapi.Error) {
	if n, ok := ctx.Value(auditKey{}).(*Note); ok {
		n.problem = e
	}
}

// NoteKubernetes keeps for the audit log which request it was.
func NoteKubernetes(ctx context.Context, k *runnerapi.KubernetesRequest) {
	if n, ok := ctx.Value(auditKey{}).(*Note); ok {
		n.kubernetes = k
	}
}

// auditKubernetes adds to a record what the request was about. It leaves out bodies, and includes
// the same parts of the query as for any call.
func auditKubernetes(k *runnerapi.KubernetesRequest, a *runnerapi.AuditRecord, method string, args map[string]any) {
	a.Namespace, a.Name = printable.Clip(k.Namespace), printable.Clip(k.Name)
	args["method"], args["path"], args["verb"], args["user"] = method, printable.Shorten(k.Path, maxArgument), k.Verb, k.Grant.As.User
}

// Begin records that a stream has begun; its end is recorded as that of any call.
func (l *Log) Begin(r *http.Request, status int, header http.Header) {
	note, ok := r.Context().Value(auditKey{}).(*Note)
	if l.Auditor == nil || !ok {
		return
	}
	call := request.CallOf(request.CallsByRoute(), r)
	record, _ := Record(r, call, note, status, header, nil)
	record.Time, record.Outcome = time.Now().UTC(), runnerapi.AuditBegun
	record.Arguments = Arguments(call, r, note, &record)
	l.Auditor.Record(record)
}
