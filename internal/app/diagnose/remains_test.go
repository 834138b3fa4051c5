package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRemains_NamesWhatHoldsPod(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	silent := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		Message: "Kubelet stopped posting node status.",
	}}}}
	told := func(end time.Time, grace int64, change ...func(*corev1.Pod)) *corev1.Pod {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-1", DeletionTimestamp: new(metav1.NewTime(end)), DeletionGracePeriodSeconds: new(grace),
			},
			Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for _, f := range change {
			f(pod)
		}
		return pod
	}
	held := func(pod *corev1.Pod) { pod.Finalizers = []string{"example.com/drained"} }
	stopped := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
	ready := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
	for name, test := range map[string]struct {
		pod   *corev1.Pod
		node  *corev1.Node
		waits string
		stuck bool
	}{
		"not told yet": {
			pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}, waits: "Kubernetes to delete pod web-1",
		},
		"within its grace": {
			pod:   told(now.Add(time.Minute), 300),
			waits: "pod web-1 to stop on node n1; its grace period of 300 s ends at 2026-05-04T12:01:00Z",
		},
		"past its grace": {
			pod: told(now.Add(-time.Minute), 30), node: ready,
			waits: "pod web-1 to stop on node n1; its grace period of 30 s ended at 2026-05-04T11:59:00Z",
		},
		"within its grace, and held": {
			pod: told(now.Add(time.Minute), 30, held),
			waits: "pod web-1 to stop on node n1; its grace period of 30 s ends at 2026-05-04T12:01:00Z; " +
				"finalizer example.com/drained holds it as well",
		},
		"held alone": {
			pod: told(now.Add(-time.Minute), 30, held, stopped), stuck: true,
			waits: "finalizer example.com/drained of pod web-1 to be removed: the pod has stopped",
		},
		"on a lost node": {
			pod: told(now.Add(-time.Minute), 30), node: silent, stuck: true,
			waits: "pod web-1 to stop: node n1, which has it, has not answered since 2026-05-04T11:00:00Z: " +
				"Kubelet stopped posting node status.; bring the node back or delete it",
		},
		"on a node that is gone": {
			pod: told(now.Add(-time.Minute), 30), stuck: true,
			waits: "pod web-1 to stop: node n1, which has it, is no longer part of the cluster; bring the node back or delete it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Remains(test.pod, test.node, now)
			assert.Equal(t, test.waits, r.Waits)
			assert.Equal(t, test.stuck, r.Stuck)
		})
	}
}
