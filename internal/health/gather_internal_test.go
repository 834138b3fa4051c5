package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// TestWhatTheKubeletSaidLastCounts is of a pod whose volume was mounted late, and whose sandbox
// fails now; and of the reverse.
func TestWhatTheKubeletSaidLastCounts(t *testing.T) {
	now := time.Now()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))},
		}},
	}
	event := func(reason string, ago time.Duration) client.Object {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: reason},
			InvolvedObject: corev1.ObjectReference{UID: "1"}, Reason: reason, Message: reason + " it is",
			LastTimestamp: metav1.NewTime(now.Add(-ago)),
		}
	}
	for name, c := range map[string]struct {
		mount, sandbox       time.Duration
		wantMount, wantBoxed string
	}{
		"the sandbox fails now": {time.Minute, time.Second, "", "FailedCreatePodSandBox it is"},
		"the mount fails now":   {time.Second, time.Minute, "FailedMount it is", ""},
	} {
		t.Run(name, func(t *testing.T) {
			live := fake.NewClientBuilder().
				WithObjects(event("FailedMount", c.mount), event("FailedCreatePodSandBox", c.sandbox)).
				WithIndex(&corev1.Event{}, "involvedObject.uid", func(o client.Object) []string {
					return []string{string(o.(*corev1.Event).InvolvedObject.UID)}
				}).Build()
			ev := diagnose.Evidence{Now: now, Mounts: map[types.UID]string{}, Sandboxes: map[types.UID]string{}}
			require.NoError(t, Gatherer{Namespace: "shop", Name: "web", Live: live}.preparation(t.Context(), pod, &ev))
			assert.Equal(t, c.wantMount, ev.Mounts["1"])
			assert.Equal(t, c.wantBoxed, ev.Sandboxes["1"])
		})
	}
}
