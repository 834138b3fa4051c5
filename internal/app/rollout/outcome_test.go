package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// TestOutcome_PerRun has a run that another one replaced.
func TestOutcome_PerRun(t *testing.T) {
	first := backend.Record{Command: "put-job", App: &backend.AppMark{Generation: 1}}
	for phase, want := range map[runnerapi.Phase]runnerapi.OperationState{
		runnerapi.PhaseHealthy:     runnerapi.OperationSucceeded,
		runnerapi.PhaseFailed:      runnerapi.OperationFailed,
		runnerapi.PhaseProgressing: runnerapi.OperationSuperseded,
	} {
		a := &v1alpha1.App{Spec: runnerapi.AppSpec{Type: runnerapi.TypeJob}}
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 1, 1, phase
		Settle(a, &a.Status, false)
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 2, 2, runnerapi.PhaseHealthy
		Settle(a, &a.Status, false)
		assert.Equal(t, want, outcomeOf(a, first).State, phase)
	}
}

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
	assert.False(t, Proven(a, 2), "a restart has to stay up again")
}

// After two bad deploys, the revision before is bad, too.
func TestRollback_SkipsFailedRevisions(t *testing.T) {
	all := []appsv1.ControllerRevision{{Revision: 3}, {Revision: 4}, {Revision: 5}, {Revision: 6}}
	for _, c := range []struct {
		healthy  []int64
		revision int64
	}{
		{[]int64{3, 4}, 4}, {[]int64{3}, 3}, {[]int64{3, 6}, 3}, // never to the current one
		{[]int64{1}, 5}, {nil, 5}, // of which nothing is kept, or known
	} {
		found, err := pick(&v1alpha1.App{Status: v1alpha1.Status{Healthy: c.healthy}}, all, 0)
		require.NoError(t, err)
		assert.Equal(t, c.revision, found.Revision, "%v", c.healthy)
	}
	found, err := pick(&v1alpha1.App{Status: v1alpha1.Status{Healthy: []int64{3}}}, all, 5)
	require.NoError(t, err)
	assert.EqualValues(t, 5, found.Revision, "whichever is asked for")
}
