package controller

import (
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestPhase_ReadyPodServes has a StatefulSet whose status is older
// than its pods'.
func TestPhase_ReadyPodServes(t *testing.T) {
	pod := func(ready corev1.ConditionStatus, deleted *metav1.Time) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: deleted},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	now := metav1.Now()
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want runnerapi.Phase
	}{
		"ready":           {pod(corev1.ConditionTrue, nil), runnerapi.PhaseDegraded},
		"not ready":       {pod(corev1.ConditionFalse, nil), runnerapi.PhaseFailed},
		"ready, stopping": {pod(corev1.ConditionTrue, &now), runnerapi.PhaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			a := &v1alpha1.App{Spec: runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet}}
			found := diagnose.Finding{Diagnosis: &runnerapi.Diagnosis{Cause: runnerapi.CauseVolumeNotBound}}
			assert.Equal(t, c.want, phase(a, made{workload: &appsv1.StatefulSet{}}, []*corev1.Pod{c.pod}, nil, found))
		})
	}
}

// TestConditions_AgreeWithKstatus has the state of each phase as kstatus and as our own check of a
// set's objects read it.
func TestConditions_AgreeWithKstatus(t *testing.T) {
	f, broken := newController(t, nil), &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop, Message: "it crashes"}
	for _, c := range []struct {
		phase     runnerapi.Phase
		diagnosis *runnerapi.Diagnosis
		want      status.Status
		own       runnerapi.ObjectState
		reason    string
	}{
		{runnerapi.PhaseHealthy, nil, status.CurrentStatus, runnerapi.ObjectReady, "Healthy"},
		{runnerapi.PhasePaused, nil, status.CurrentStatus, runnerapi.ObjectReady, "Paused"},
		{runnerapi.PhaseProgressing, nil, status.InProgressStatus, runnerapi.ObjectInProgress, "Progressing"},
		{runnerapi.PhaseDegraded, nil, status.InProgressStatus, runnerapi.ObjectInProgress, "Degraded"},
		{runnerapi.PhaseDegraded, broken, status.FailedStatus, runnerapi.ObjectFailed, "CrashLoop"},
		{runnerapi.PhaseFailed, broken, status.FailedStatus, runnerapi.ObjectFailed, "CrashLoop"},
	} {
		a := app("")
		before := runnerapi.Condition{Type: runnerapi.ConditionReady, Status: "False", LastTransitionTime: "2020-01-01T00:00:00Z"}
		a.Status.Conditions = []runnerapi.Condition{before}
		s := v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: c.phase, Diagnosis: c.diagnosis, ObservedGeneration: 1}}
		s.Conditions = []runnerapi.Condition{*runnerapi.ConditionIngressReady.True(runnerapi.ReasonServed)}
		f.withSummary(a, &s)
		f.withSummary(a, &s) // not twice
		assert.Len(t, s.Conditions, map[bool]int{true: 2, false: 3}[c.want == status.CurrentStatus])
		assert.Equal(t, c.reason, s.Conditions[0].Reason)
		assert.Equal(t, s.Conditions[0].Holds(), s.Conditions[0].LastTransitionTime != before.LastTransitionTime)
		a.Status = s
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
		require.NoError(t, err)
		u := &unstructured.Unstructured{Object: content}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		got, err := status.Compute(u)
		require.NoError(t, err)
		assert.Equal(t, c.want, got.Status, c.reason)
		own, _, err := workloadhealth.New(nil, diagnose.Stabilization{}).Check(t.Context(), u)
		require.NoError(t, err)
		assert.Equal(t, c.own, own.State, c.reason)
	}
}

// TestPhase_FlappingServes is of an App that serves between its crashes.
func TestPhase_FlappingServes(t *testing.T) {
	a := &v1alpha1.App{Status: v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseDegraded}}}
	ready := []*corev1.Pod{{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}}
	long, short := diagnose.Finding{Flaps: true}, diagnose.Finding{Brief: 1}
	assert.True(t, serves(a, workload.Figures{}, ready, long))
	assert.True(t, serves(a, workload.Figures{}, nil, long), "while it is down it is still Degraded")
	assert.False(t, serves(a, workload.Figures{}, ready, short), "what ends at once serves nobody")
	assert.False(t, serves(&v1alpha1.App{}, workload.Figures{}, nil, long), "it has never served")
	assert.True(t, serves(a, workload.Figures{Available: 2}, nil, short), "another pod does")
}

// TestStatus_LastLinesOfInitContainer expects them only while the App waits for that container.
func TestStatus_LastLinesOfInitContainer(t *testing.T) {
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
