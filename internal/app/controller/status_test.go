package controller

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
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
