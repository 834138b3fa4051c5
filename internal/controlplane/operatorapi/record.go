package operatorapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// auditMost is how many batches of the operators' audit log are kept; most hold one record.
	auditMost = 100_000
	// maxArguments bounds what a record has of a call's input, in bytes.
	maxArguments = 4 << 10
	// keepTimeout bounds the wait for a record before a change.
	keepTimeout = 10 * time.Second
)

// auditStore keeps the operators' audit log in the database, which all control planes share.
type auditStore struct{ s *store.Store }

var _ audit.Store = auditStore{}

// Put implements audit.Store.
func (a auditStore) Put(ctx context.Context, first int64, text []byte) (bool, error) {
	return a.s.AddOperatorAudit(ctx, first, string(text))
}

// Get implements audit.Store.
func (a auditStore) Get(ctx context.Context, first int64) ([]byte, error) {
	text, err := a.s.OperatorAudit(ctx, first)
	if err != nil || text == "" {
		return nil, err
	}
	return []byte(text), nil
}

// List implements audit.Store.
func (a auditStore) List(ctx context.Context) ([]int64, error) { return a.s.OperatorAuditNumbers(ctx) }

// Delete implements audit.Store.
func (a auditStore) Delete(ctx context.Context, first int64) error {
	return a.s.DeleteOperatorAudit(ctx, first)
}

// Most implements audit.Store.
func (a auditStore) Most() int { return auditMost }

// String implements audit.Store.
func (a auditStore) String() string { return "the control plane's database" }

// record is what the audit log gets about a call.
type record struct {
	runnerapi.AuditRecord
	began bool // the log has a record of the call's beginning
}

// newRecord begins a record of a call. The agents' field for the Runner has the operator.
func newRecord(d *Description, operator, certificate, requestID string, at time.Time) *record {
	return &record{AuditRecord: runnerapi.AuditRecord{
		Time: at.UTC(), Runner: operator, Certificate: certificate, RequestID: requestID, Command: d.ID,
	}}
}

// about adds the input: what it names, and what was sent without secrets.
func (r *record) about(d *Description, in any) {
	sent := inputOf(in)
	arguments := map[string]any{}
	for _, name := range sent.order {
		r.Name = cmp.Or(r.Name, sent.path[name])
		arguments[name] = sent.path[name]
	}
	for name := range sent.query {
		arguments[name] = sent.query.Get(name)
	}
	for name, value := range sent.fields() {
		if !slices.Contains(d.Hidden, name) {
			arguments[name] = value
		}
	}
	if r.Name == "" {
		r.Name, _ = arguments["name"].(string)
	}
	text, err := json.Marshal(arguments)
	if err != nil || len(text) > maxArguments {
		text = []byte(`{"omitted":true}`)
	}
	r.Arguments = text
}

// ended sets how the call ended.
func (r *record) ended(err error, now time.Time) {
	r.Millis = now.Sub(r.Time).Milliseconds()
	if err == nil {
		r.Outcome, r.Status = runnerapi.AuditDone, http.StatusOK
		return
	}
	e := &problem.Error{}
	if !errors.As(err, &e) {
		e = problem.Unexpected()
	}
	r.Outcome, r.Status, r.Code, r.Message = runnerapi.AuditRefused, e.Status, e.Code, e.Detail
	if e.Status >= http.StatusInternalServerError {
		r.Outcome = runnerapi.AuditFailed
	}
}

// recorder writes the operators' audit log.
type recorder struct {
	log *audit.Log
	now func() time.Time
}

func newRecorder(s *store.Store, replica string, now func() time.Time, log zerolog.Logger) recorder {
	return recorder{audit.New(auditStore{s}, replica, log), now}
}

// begin keeps a record before a change is carried out: no change is without one.
func (l recorder) begin(ctx context.Context, r *record) error {
	begun := r.AuditRecord
	begun.Outcome = runnerapi.AuditBegun
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if err := l.log.Keep(ctx, begun); err != nil {
		return problem.Errorf(problem.Unavailable, "look for the reason in the control plane's log, and try again",
			"nothing was changed: the operators' audit log cannot be written")
	}
	r.began = true
	return nil
}

// end records how a change ended, and any refusal.
func (l recorder) end(r *record, err error) {
	if !r.began && err == nil {
		return // it has read, or was a dry run
	}
	r.ended(err, l.now())
	l.log.Record(r.AuditRecord)
}
