package source

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

// before keeps a record that a commit is about to be brought, or built. A commit that failed,
// and is tried again, has one.
func (k *Keeper) before(ctx context.Context, o *object, command string, key runnerapi.Key, commit string, dryRun bool) error {
	if k.Before == nil || dryRun || o.triedBefore(commit) {
		return nil
	}
	r := k.record(o, command, key, map[string]string{"commit": commit, "url": o.Spec.URL})
	r.Outcome, r.Status = runnerapi.AuditBegun, 0
	return k.Before(ctx, r)
}

// triedBefore reports whether this commit was tried for this spec, and not only refused for
// want of a record.
func (o *object) triedBefore(commit string) bool {
	e := o.Status.Error
	return o.observed() && o.Status.Attempted == commit && e != nil && e.Code != string(server.CodeAuditUnavailable)
}
