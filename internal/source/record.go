package source

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// journal writes the audit records of what sources bring.
type journal struct {
	audit func(runnerapi.AuditRecord)                        // may be nil
	begin func(context.Context, runnerapi.AuditRecord) error // Config.Before; may be nil
	now   func() time.Time
}

// before keeps a record that a commit is about to be brought, or built. A commit that failed,
// and is tried again, has one.
func (j *journal) before(ctx context.Context, o *object, command string, key runnerapi.Key, commit string, dryRun bool) error {
	if j.begin == nil || dryRun || o.triedBefore(commit) {
		return nil
	}
	r := j.record(o, command, key, map[string]string{"commit": commit, "url": o.Spec.URL})
	r.Outcome, r.Status = runnerapi.AuditBegun, 0
	return j.begin(ctx, r)
}

// triedBefore reports whether this commit was tried for this spec, and not only refused for
// want of a record.
func (o *object) triedBefore(commit string) bool {
	e := o.Status.Error
	return o.observed() && o.Status.Attempted == commit && e != nil && e.Code != string(backend.CodeAuditUnavailable)
}

// note adds a record of what was brought, or why not, to the audit log.
func (j *journal) note(o *object, out brought, e *runnerapi.SourceError) {
	r := j.record(o, syncSource, o.key(), about(o, out))
	if e != nil {
		r.Outcome, r.Status, r.Code, r.Message = runnerapi.AuditFailed, http.StatusUnprocessableEntity, runnerapi.Code(e.Code), e.Message
	}
	if j.audit != nil {
		j.audit(r)
	}
}

// noteBuild adds a record of a build that was started.
func (j *journal) noteBuild(o *object, b runnerapi.Build) {
	if j.audit != nil {
		j.audit(j.record(o, putBuild, runnerapi.Key{Namespace: b.Namespace, Name: b.Name},
			map[string]string{"commit": b.Spec.Git.Ref.Commit, "url": b.Spec.Git.URL, "image": b.Spec.Image}))
	}
}

func (j *journal) record(o *object, command string, key runnerapi.Key, about map[string]string) runnerapi.AuditRecord {
	arguments, err := json.Marshal(about)
	if err != nil {
		arguments = nil // of texts: impossible
	}
	return runnerapi.AuditRecord{
		Time: j.now().UTC(), Runner: o.caller().Runner, RequestID: o.caller().RequestID, Command: command,
		Namespace: key.Namespace, Name: key.Name, Arguments: arguments, Outcome: runnerapi.AuditDone, Status: http.StatusOK,
	}
}

// act does something of a source to another object, with its records: one before, where the policy
// requires that. What failed before, and fails again, has its records.
func (j *journal) act(ctx context.Context, r runnerapi.AuditRecord, failedBefore bool, do func() error) error {
	if j.begin != nil && !failedBefore {
		begun := r
		begun.Outcome, begun.Status = runnerapi.AuditBegun, 0
		if err := j.begin(ctx, begun); err != nil {
			return err
		}
	}
	err := do()
	if err != nil {
		e := asSourceError(err)
		r.Outcome, r.Status, r.Code, r.Message = runnerapi.AuditFailed, http.StatusUnprocessableEntity, runnerapi.Code(e.Code), e.Message
	}
	if j.audit != nil && (err == nil || !failedBefore) {
		j.audit(r)
	}
	return err
}

// about returns what a record names of a commit.
func about(o *object, out brought) map[string]string {
	names := map[string]string{"commit": out.commit, "url": o.Spec.URL}
	if out.tag != "" {
		names["tag"] = out.tag
	}
	if o.Spec.Promote != nil {
		names["promotedFrom"] = o.promotedFrom().String()
	}
	return names
}
