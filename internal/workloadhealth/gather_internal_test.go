package workloadhealth

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// scheduled returns a pod of which its node's kubelet has said nothing.
func scheduled(at time.Time) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)},
		}},
	}
}

// TestGather_ReadsNode reads a node only if its kubelet is silent about the pod. A node that was
// deleted is nil.
func TestGather_ReadsNode(t *testing.T) {
	now := time.Now()
	for what, c := range map[string]struct {
		node, want string
		at         time.Time
	}{
		"silent kubelet": {"node-1", "node-1", now.Add(-time.Minute)},
		"deleted node":   {"node-2", "", now.Add(-time.Minute)},
		"new pod":        {"node-1", "not read", now},
	} {
		t.Run(what, func(t *testing.T) {
			live := fake.NewClientBuilder().WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}}).
				WithIndex(&corev1.Node{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
			ev := diagnose.Evidence{Now: now, Nodes: map[string]*corev1.Node{}}
			require.NoError(t, Gatherer{Live: live}.lookAtNode(t.Context(), scheduled(c.at), &ev))
			got := "not read"
			if node, read := ev.Nodes["node-1"]; read {
				got = ptr.Deref(node, corev1.Node{}).Name
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// TestGather_LastKubeletEventCounts is of a pod whose volume was mounted late, and whose sandbox
// fails now; and of the reverse.
func TestGather_LastKubeletEventCounts(t *testing.T) {
	now := time.Now()
	pod := scheduled(now.Add(-time.Minute))
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

// TestGather_IgnoresOldClaimEvent is of a StatefulSet's claim that got its volume late: the next
// pod of the same name has it, though the event about its failure is still there.
func TestGather_IgnoresOldClaimEvent(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	failed := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: "failed"},
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Name: "data-db-1"},
		Reason:         "ProvisioningFailed", Message: "no class fast", LastTimestamp: at(20 * time.Second),
	}
	says := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
	}
	for name, c := range map[string]struct {
		created    metav1.Time
		conditions []corev1.PodCondition
		want       string
	}{
		"the pod is newer":        {created: at(time.Second)},
		"the event is newer":      {created: at(time.Minute), want: "no class fast"},
		"the scheduler waits":     {created: at(time.Second), conditions: []corev1.PodCondition{says}, want: "no class fast"},
		"both in the same second": {created: at(20 * time.Second), want: "no class fast"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1", CreationTimestamp: c.created},
				Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-1"},
				}}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: c.conditions},
			}
			live := fake.NewClientBuilder().WithObjects(failed.DeepCopy()).
				WithIndex(&corev1.Event{}, "involvedObject.kind", func(o client.Object) []string {
					return []string{o.(*corev1.Event).InvolvedObject.Kind}
				}).
				WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
					return []string{o.(*corev1.Event).InvolvedObject.Name}
				}).Build()
			claim, err := Gatherer{Namespace: "shop", Name: "db", Live: live}.unbound(t.Context(), pod)
			require.NoError(t, err)
			assert.Equal(t, c.want, claim.Message)
		})
	}
}

// Each pod that ends changes the status of its workload, between the diagnosis and the stop.
func TestStop_SurvivesStatusChanges(t *testing.T) {
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	api := fake.NewClientBuilder().WithObjects(d).WithStatusSubresource(d).Build()
	key := client.ObjectKeyFromObject(d)
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(d.GroupVersionKind())
	require.NoError(t, api.Get(t.Context(), key, live))

	now := &appsv1.Deployment{}
	require.NoError(t, api.Get(t.Context(), key, now))
	now.Status.UnavailableReplicas = 2
	require.NoError(t, api.Status().Update(t.Context(), now))
	require.NotEqual(t, live.GetResourceVersion(), now.ResourceVersion)
	require.NoError(t, hold(t.Context(), api, live, d, "pipeops", &runnerapi.Diagnosis{Cause: runnerapi.CauseAdmissionRefused}))
	require.NoError(t, api.Get(t.Context(), key, now))
	assert.EqualValues(t, 0, *now.Spec.Replicas)

	now.Spec.Replicas, now.Generation = new(int32(3)), 2
	require.NoError(t, api.Update(t.Context(), now))
	err := hold(t.Context(), api, live, d, "pipeops", &runnerapi.Diagnosis{Cause: runnerapi.CauseAdmissionRefused})
	assert.EqualError(t, err, "its spec has changed meanwhile", "another spec is not stopped for the former's fault")
	require.NoError(t, api.Get(t.Context(), key, now))
	assert.EqualValues(t, 3, *now.Spec.Replicas)
}

// TestGather_MakerOfSecret reads the newest warning about an object that a Secret is made from.
func TestGather_MakerOfSecret(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	event := func(name, apiVersion, kind string, ago time.Duration) client.Object {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name},
			InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Name: "db"},
			Type:           corev1.EventTypeWarning, Reason: "UpdateFailed", Message: name, LastTimestamp: metav1.NewTime(now.Add(-ago)),
		}
	}
	live := fake.NewClientBuilder().WithObjects(
		event("older", "external-secrets.io/v1", "ExternalSecret", time.Minute),
		event("newer", "external-secrets.io/v1", "ExternalSecret", time.Second),
		event("another", "apps/v1", "Deployment", 0),
	).WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string {
		return []string{o.(*corev1.Event).InvolvedObject.Name}
	}).WithIndex(&corev1.Event{}, "type", func(o client.Object) []string { return []string{o.(*corev1.Event).Type} }).Build()
	pod := scheduled(now.Add(-time.Minute))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "db" not found`},
	}}}
	ev := diagnose.Evidence{Now: now, Pods: []*corev1.Pod{pod}}
	require.NoError(t, Gatherer{Namespace: "shop", Name: "web", Live: live}.missingSources(t.Context(), &ev))
	assert.Equal(t, map[string]diagnose.Maker{"db": {Kind: "ExternalSecret", Name: "db", Message: "newer"}}, ev.Makers)

	require.NoError(t, live.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}))
	require.NoError(t, Gatherer{Namespace: "shop", Name: "web", Live: live}.missingSources(t.Context(), &ev))
	assert.Equal(t, map[diagnose.Source]bool{{Kind: "secret", Name: "db"}: true}, ev.There, "the kubelet has not looked since")
	assert.Empty(t, ev.Makers)
}
