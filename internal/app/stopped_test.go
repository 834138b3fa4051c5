package app_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// refusePods makes what a ReplicaSet leaves behind whose pods the kubelet refuses.
func refusePods(t *testing.T, env *kubetest.Env, k runnerapi.Key, image string) {
	t.Helper()
	d := &appsv1.Deployment{}
	eventually(t, "the deployment of "+image, func() bool {
		return exists(t, env, k, d) && d.Spec.Template.Spec.Containers[0].Image == image
	})
	revision := map[string]string{"deployment.kubernetes.io/revision": image}
	d.Annotations["deployment.kubernetes.io/revision"] = image
	require.NoError(t, env.Client.Update(t.Context(), d))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1}
	require.NoError(t, env.Client.Status().Update(t.Context(), d))
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: k.Name + "-", Namespace: k.Namespace, Annotations: revision, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	require.NoError(t, env.Client.Create(t.Context(), rs))
	for i := range 5 {
		pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.Spec.NodeName = k.Namespace, fmt.Sprint(rs.Name, "-", i), "n1"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		require.NoError(t, env.Client.Create(t.Context(), pod))
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SysctlForbidden", Message: "forbidden sysctl"}
		require.NoError(t, env.Client.Status().Update(t.Context(), pod))
	}
}

func TestRollout_StopsRefusedPods(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	first := key(ns, "never-good")
	deploy(t, e, first, image("bad"))
	refusePods(t, env, first, image("bad").Image)
	eventually(t, "it has no pods any more", func() bool { return *get(t, env, first, &appsv1.Deployment{}).Spec.Replicas == 0 })
	a := settledIn(t, e, first, runnerapi.PhaseFailed)
	assert.Equal(t, runnerapi.CauseAdmissionRefused, a.Status.Diagnosis.Cause)
	assert.Contains(t, a.Status.Diagnosis.Message, "the agent stopped the rollout")
	deploy(t, e, first, image("good"))
	eventually(t, "another spec is rolled out", func() bool {
		d := get(t, env, first, &appsv1.Deployment{})
		return *d.Spec.Replicas == 1 && d.Spec.Template.Spec.Containers[0].Image == image("good").Image
	})

	k := key(ns, "was-good")
	deploy(t, e, k, image("good"))
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)
	deploy(t, e, k, image("bad"))
	refusePods(t, env, k, image("bad").Image)
	eventually(t, "it is what was healthy", func() bool {
		d := get(t, env, k, &appsv1.Deployment{})
		return *d.Spec.Replicas == 1 && d.Spec.Template.Spec.Containers[0].Image == image("good").Image
	})
	rollOut(t, env, k)
	a = settledIn(t, e, k, runnerapi.PhaseDegraded)
	assert.Equal(t, image("bad").Image, a.Spec.Image, "what was asked for stays")
	assert.Equal(t, runnerapi.CauseAdmissionRefused, a.Status.Diagnosis.Cause)
}
