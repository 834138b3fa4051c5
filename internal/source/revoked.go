package source

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/condition"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// CodeRunnerRevoked is why a source is suspended whose Runner was revoked.
const CodeRunnerRevoked = "runner_revoked"

// revokedRunners are the names of the revoked Runners, as the control plane lists them.
type revokedRunners struct {
	mu    sync.Mutex
	names []string
}

// set reports whether the names have changed.
func (r *revokedRunners) set(names []string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = !slices.Equal(r.names, names)
	r.names = slices.Clone(names)
	return changed
}

func (r *revokedRunners) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.names, name)
}

// SetRevoked sets the names of the revoked Runners, as the control plane lists them. It suspends
// the sources that one of them put: what a source brings is brought in the name of its Runner.
func (k *Keeper) SetRevoked(runners []string) {
	if !k.revoked.set(runners) {
		return
	}
	for _, u := range k.watched.all() {
		if o, err := read(u); err == nil && slices.Contains(runners, o.caller().Runner) {
			k.work.Add(o.key())
		}
	}
}

// suspendedAsPut reports whether the suspension in the status is of the newest put.
func (o *object) suspendedAsPut() bool {
	s := o.Status.Suspension
	return s.Runner == o.caller().Runner && s.RequestID == o.caller().RequestID
}

// suspension returns why a source is not followed; nil if it is. It lasts until any Runner puts the
// source again: a Runner of the same name may be created again, for another holder.
func (r *reconciler) suspension(o *object) *runnerapi.SourceSuspension {
	by := o.caller()
	if before := o.Status.Suspension; before != nil && o.suspendedAsPut() {
		return before
	}
	if by.Runner == "" || !r.revoked.has(by.Runner) {
		return nil
	}
	return &runnerapi.SourceSuspension{
		Code: CodeRunnerRevoked, Runner: by.Runner, RequestID: by.RequestID, Since: r.now().UTC().Format(time.RFC3339),
		Message: fmt.Sprintf("Runner %s, which put this source, was revoked; what the source has brought keeps running", by.Runner),
		Fix:     fmt.Sprintf("as another Runner, put it again: pipeops-runner source set AGENT %s -n %s; or delete it", o.Name, o.Namespace),
	}
}

// withoutBuild ends a build that is in progress. It returns one that has ended.
func (r *reconciler) withoutBuild(ctx context.Context, o *object) *runnerapi.SourceBuildStatus {
	b := o.Status.Build
	if b != nil && !b.Phase.Ended() {
		r.cleanup.tidy(ctx, o, nil)
		return nil
	}
	return b
}

// suspend leaves a source as it is. A build that is in progress ends: it would push an image in
// the name of a Runner that is revoked.
func (r *reconciler) suspend(ctx context.Context, o *object, s runnerapi.SourceStatus) runnerapi.SourceStatus {
	s.Build = r.withoutBuild(ctx, o)
	if o.Status.Suspension == nil || *o.Status.Suspension != *s.Suspension {
		r.log.Warn().Stringer("source", o.key()).Str("runner", s.Suspension.Runner).Msg("Git source suspended: the Runner that put it was revoked")
		r.journal.note(o, brought{commit: s.Commit}, &runnerapi.SourceError{Code: s.Suspension.Code, Message: s.Suspension.Message})
	}
	s.Phase, s.Error = runnerapi.SourceSuspended, nil
	r.condition(&s, condition.Failed, "RunnerRevoked", s.Suspension.Message)
	return s
}
