package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// CodeRunnerRevoked is why a source is suspended whose Runner was revoked.
const CodeRunnerRevoked = "runner_revoked"

// SetRevoked sets the names of the revoked Runners, as the control plane lists them. It suspends
// the sources that one of them put: what a source brings is brought in the name of its Runner.
func (k *Keeper) SetRevoked(runners []string) {
	k.mu.Lock()
	changed := !slices.Equal(k.revoked, runners)
	k.revoked = slices.Clone(runners)
	stores := k.stores
	k.mu.Unlock()
	if !changed {
		return
	}
	for _, store := range stores {
		for _, in := range store.List() {
			u, ok := in.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			if o, err := read(u); err == nil && slices.Contains(runners, o.caller().Runner) {
				k.work.Add(o.key())
			}
		}
	}
}

func (k *Keeper) isRevoked(runner string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.revoked, runner)
}

// suspension returns why a source is not followed; nil if it is. It lasts until any Runner puts the
// source again: a Runner of the same name may be created again, for another holder.
func (k *Keeper) suspension(o *object) *runnerapi.SourceSuspension {
	by := o.caller()
	if before := o.Status.Suspension; before != nil && o.suspendedAsPut() {
		return before
	}
	if by.Runner == "" || !k.isRevoked(by.Runner) {
		return nil
	}
	return &runnerapi.SourceSuspension{
		Code: CodeRunnerRevoked, Runner: by.Runner, RequestID: by.RequestID, Since: k.now().UTC().Format(time.RFC3339),
		Message: fmt.Sprintf("Runner %s, which put this source, was revoked; what the source has brought goes on running", by.Runner),
		Fix:     fmt.Sprintf("as another Runner, put it again: pipeops-runner source put AGENT %s -n %s; or delete it", o.Name, o.Namespace),
	}
}

// suspendedAsPut reports whether the suspension in the status is of the newest put.
func (o *object) suspendedAsPut() bool {
	s := o.Status.Suspension
	return s.Runner == o.caller().Runner && s.RequestID == o.caller().RequestID
}

// suspend leaves a source as it is. A build that is under way ends: it would push an image in
// the name of a Runner that is revoked.
func (k *Keeper) suspend(ctx context.Context, o *object, s runnerapi.SourceStatus) runnerapi.SourceStatus {
	if b := s.Build; b != nil && !b.Phase.Ended() {
		k.tidy(ctx, o, nil)
		s.Build = nil
	}
	if o.Status.Suspension == nil || *o.Status.Suspension != *s.Suspension {
		k.Log.Warn().Stringer("source", o.key()).Str("runner", s.Suspension.Runner).Msg("Git source suspended: the Runner that put it was revoked")
		k.note(o, brought{commit: s.Commit}, &runnerapi.SourceError{Code: s.Suspension.Code, Message: s.Suspension.Message})
	}
	s.Phase, s.Error = runnerapi.SourceSuspended, nil
	k.condition(&s, "Unknown", "RunnerRevoked", s.Suspension.Message)
	return s
}
