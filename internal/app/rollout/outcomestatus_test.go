package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestRollback_SkipsCrashedRevision follows an App through three rollouts.
func TestRollback_SkipsCrashedRevision(t *testing.T) {
	a := &v1alpha1.App{Spec: runnerapi.AppSpec{Rollback: runnerapi.RollbackOnFailure}}
	come := func(revision int64, phase runnerapi.Phase, crashed bool) {
		a.Generation, a.Status.ObservedGeneration = revision, revision
		a.Status.Revision, a.Status.Phase, a.Status.Diagnosis = revision, phase, nil
		if phase == runnerapi.PhaseFailed {
			a.Status.Diagnosis = &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop}
		}
		Settle(a, &a.Status, crashed)
	}
	come(1, runnerapi.PhaseHealthy, false)
	assert.True(t, Proven(a, 1))
	come(2, runnerapi.PhaseHealthy, false)
	assert.EqualValues(t, 1, a.RollbackTarget())
	come(2, runnerapi.PhaseFailed, true)
	assert.False(t, Proven(a, 2))
	assert.False(t, failedRollout(a), "a crash long after the rollout takes nothing back")
	come(3, runnerapi.PhaseFailed, true)
	assert.True(t, failedRollout(a))
	assert.EqualValues(t, 1, a.RollbackTarget(), "revision 2 crashes")

	come(2, runnerapi.PhaseHealthy, false)
	come(3, runnerapi.PhaseFailed, true)
	assert.EqualValues(t, 2, a.RollbackTarget(), "it stayed up again")
	a.Annotations = map[string]string{"pipeops.io/restarted-at": "now"}
	assert.False(t, Proven(a, 2), "a restart has to stay up anew")
}
