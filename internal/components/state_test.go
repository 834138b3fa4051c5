package components_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/health"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestState_FollowsPods uses the rights of the agent, which reads neither Helm's records nor events
// there.
func TestState_FollowsPods(t *testing.T) {
	env := kubetest.ControlPlane(t)
	i := installer(t, env)
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))

	agent, err := kubernetes.NewForConfig(env.Agent)
	require.NoError(t, err)
	state := func() components.State {
		states, err := components.States(t.Context(), agent, health.NewFromPods(env.Agent, diagnose.DefaultStabilization))
		require.NoError(t, err)
		require.Len(t, states, 1)
		assert.Equal(t, "vpa", states[0].Component)
		assert.Equal(t, "0.11.0", states[0].Version)
		return states[0]
	}
	fresh := state()
	assert.False(t, fresh.Ready)
	assert.Empty(t, fresh.Cause, "it only starts")

	deployment := imagePullFails(t, i.Client, "vpa")
	broken := state()
	assert.False(t, broken.Ready)
	assert.Contains(t, broken.Cause, "Image")
	assert.NotEmpty(t, broken.Fix)
	assert.Equal(t, "vpa/"+deployment.Name, broken.Workload)

	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
	}
	_, err = i.Client.AppsV1().Deployments("vpa").UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{})
	require.NoError(t, err)
	assert.True(t, state().Ready)

	cluster, err := components.Look(t.Context(), i.Client)
	require.NoError(t, err)
	for _, status := range components.Statuses(cluster, []components.State{broken}) {
		if status.Component == "vpa" {
			require.Len(t, status.Releases, 1)
			assert.Equal(t, status.Releases[0].Version, status.Releases[0].Newest)
			assert.False(t, status.Releases[0].Changed.IsZero())
			assert.Equal(t, &broken, status.State)
		} else {
			assert.Nil(t, status.State)
		}
	}
}

// imagePullFails does what a controller and a kubelet would, which the test API server lacks: the
// only Deployment of a namespace has a pod whose image cannot be pulled.
func imagePullFails(t *testing.T, client kubernetes.Interface, namespace string) *appsv1.Deployment {
	t.Helper()
	ctx := t.Context()
	list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	d := &list.Items[0]
	const revision = "deployment.kubernetes.io/revision"
	d.Annotations[revision] = "1"
	d, err = client.AppsV1().Deployments(namespace).Update(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, UnavailableReplicas: 1}
	d, err = client.AppsV1().Deployments(namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-components"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	require.NoError(t, err)
	labels := d.Spec.Template.Labels
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name + "-1", Labels: labels, Annotations: map[string]string{revision: "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: d.Spec.Replicas, Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	rs, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, rs, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: rs.Name + "-x", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: corev1.PodSpec{NodeName: "of-components", Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/none:1"}}},
	}
	pod, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Image: "registry.example.com/none:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "registry.example.com/none:1: not found"},
		}}},
	}
	_, err = client.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { // no garbage collector does it
		_ = client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
		_ = client.CoreV1().Pods(namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
		_ = client.AppsV1().ReplicaSets(namespace).Delete(context.Background(), rs.Name, metav1.DeleteOptions{})
	})
	return d
}
