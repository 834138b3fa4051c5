package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestKubelet_CatchingUpPasses has an event that says that a volume cannot be mounted. The message
// often hides the true cause, which the next event names.
func TestKubelet_CatchingUpPasses(t *testing.T) {
	const setUp = `MountVolume.SetUp failed for volume "pipeops-file-1" : `
	find := func(age time.Duration, message string) Finding {
		return Find(Evidence{Pods: []*corev1.Pod{scheduled(age)}, Mounts: map[types.UID]string{"1": setUp + message}, Now: now})
	}
	for message, cause := range map[string]runnerapi.Cause{
		"failed to sync secret cache: timed out waiting for the condition":    runnerapi.CauseVolumeNotBound,
		"failed to sync configmap cache: timed out waiting for the condition": runnerapi.CauseVolumeNotBound,
		`object "shop"/"certs" not registered`:                                runnerapi.CauseVolumeNotBound,
		`configmap "kube-root-ca.crt" not found`:                              runnerapi.CauseMissingConfigMap,
	} {
		t.Run(message, func(t *testing.T) {
			for age, again := range map[time.Duration]time.Duration{
				2 * time.Second: time.Second, 2*time.Minute - time.Second: time.Second,
			} {
				early := find(age, message)
				assert.Nil(t, early.Diagnosis, "after %s", age)
				assert.Equal(t, again, early.Recheck, "after %s", age)
			}
			d := find(2*time.Minute, message).Diagnosis
			require.NotNil(t, d, "it does not pass")
			assert.Equal(t, cause, d.Cause)
			if cause == runnerapi.CauseVolumeNotBound {
				assert.Contains(t, d.Message, message)
			}
			checkFix(t, d)
		})
	}
	d := find(2*time.Second, `secret "certs" not found`).Diagnosis
	require.NotNil(t, d, "a final error is reported at once")
	assert.Equal(t, runnerapi.CauseMissingSecret, d.Cause)
}

// TestKubelet_LateIsNoMissingConfig has a container whose environment comes from a Secret.
func TestKubelet_LateIsNoMissingConfig(t *testing.T) {
	for _, message := range []string{
		"failed to sync secret cache: timed out waiting for the condition", `object "shop"/"certs" not registered`,
	} {
		assert.Nil(t, Find(Evidence{Pods: []*corev1.Pod{pod(waits("CreateContainerConfigError", message))}, Now: now}).Diagnosis, message)
	}
}

// scheduled is a pod on a node, whose containers are not created for some time.
func scheduled(age time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "1", CreationTimestamp: ago(age)},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")},
		}}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodPending,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(age)}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"},
			}}},
		},
	}
}

func TestSandbox_CreationFailure(t *testing.T) {
	const rpc = "Failed to create pod sandbox: rpc error: code = Unknown desc = "
	find := func(age time.Duration, message string) Finding {
		return Find(Evidence{Pods: []*corev1.Pod{scheduled(age)}, Sandboxes: map[types.UID]string{"1": rpc + message}, Now: now})
	}
	d := find(2*time.Second, "runc create failed: container init was OOM-killed (memory limit too low?): unknown").Diagnosis
	diagnosed(t, d, runnerapi.CauseOutOfMemory, "1Mi") // more memory is what helps, not time

	const network = "plugin type=\"bridge\" failed (add): no IP addresses available in range set"
	soon := find(sandboxPatience-time.Second, network)
	assert.Nil(t, soon.Diagnosis, "a new node's network may take its time")
	assert.Equal(t, time.Second, soon.Recheck)
	d = find(sandboxPatience, network).Diagnosis
	require.NotNil(t, d)
	assert.Equal(t, "pod/web-1", d.Object)
	assert.Contains(t, d.Message, "node node-1 cannot create the pod's sandbox")
	assert.Contains(t, d.Message, "no IP addresses available")
	assert.Contains(t, d.Fix, "network plugin of node node-1")
}
