package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestARevisionThatCrashesIsNoTarget follows an App through three rollouts.
func TestARevisionThatCrashesIsNoTarget(t *testing.T) {
	a := &App{Spec: runnerapi.AppSpec{Rollback: runnerapi.RollbackOnFailure}}
	come := func(revision int64, phase runnerapi.Phase, crashed bool) {
		a.Generation, a.Status.ObservedGeneration = revision, revision
		a.Status.Revision, a.Status.Phase, a.Status.Diagnosis = revision, phase, nil
		if phase == runnerapi.PhaseFailed {
			a.Status.Diagnosis = &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop}
		}
		settle(a, &a.Status, crashed)
	}
	come(1, runnerapi.PhaseHealthy, false)
	assert.True(t, a.proven(1))
	come(2, runnerapi.PhaseHealthy, false)
	assert.EqualValues(t, 1, a.goesBackTo())
	come(2, runnerapi.PhaseFailed, true)
	assert.False(t, a.proven(2))
	assert.False(t, failedRollout(a), "a crash long after the rollout takes nothing back")
	come(3, runnerapi.PhaseFailed, true)
	assert.True(t, failedRollout(a))
	assert.EqualValues(t, 1, a.goesBackTo(), "revision 2 crashes")

	come(2, runnerapi.PhaseHealthy, false)
	come(3, runnerapi.PhaseFailed, true)
	assert.EqualValues(t, 2, a.goesBackTo(), "it stayed up again")
	a.Annotations = map[string]string{"pipeops.io/restarted-at": "now"}
	assert.False(t, a.proven(2), "a restart has to stay up anew")
}

// TestFlappingKeepsItsPhase is of an App that serves between its crashes.
func TestFlappingKeepsItsPhase(t *testing.T) {
	a := &App{Status: Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseDegraded}}}
	ready := []*corev1.Pod{{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}}
	long, short := diagnose.Finding{Flaps: true}, diagnose.Finding{Brief: 1}
	assert.True(t, serves(a, figures{}, ready, long))
	assert.True(t, serves(a, figures{}, nil, long), "while it is down it is still Degraded")
	assert.False(t, serves(a, figures{}, ready, short), "what ends at once serves nobody")
	assert.False(t, serves(&App{}, figures{}, nil, long), "it has never served")
	assert.True(t, serves(a, figures{available: 2}, nil, short), "another pod does")
}

// TestTheLastLinesOfAnInitContainer are in the status while it is waited for, and no longer.
func TestTheLastLinesOfAnInitContainer(t *testing.T) {
	s := runnerapi.AppStatus{WaitingFor: "init container db", LastLines: []string{"waiting"}}
	other := s.DeepCopy()
	other.LastLines[0] = "ready"
	assert.Equal(t, []string{"waiting"}, s.LastLines, "a copy shares nothing")
	f := diagnose.Finding{Initializing: "init container db", LastLines: []string{"waiting"}}
	assert.Equal(t, f.LastLines, linesOf(f, f.Initializing))
	assert.Empty(t, linesOf(f, "its objects to be created"))
	assert.Empty(t, linesOf(diagnose.Finding{}, ""))
	job := runnerapi.JobOf(runnerapi.App{Status: s})
	assert.Equal(t, s.LastLines, job.Status.LastLines)
	assert.Equal(t, s.WaitingFor, job.Status.WaitingFor)
}
