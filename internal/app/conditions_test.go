package app_test

import (
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestConditions_KubectlAndKstatus reads Apps as kubectl wait, Flux and Helm do, from the moment
// when the agent has not seen them.
func TestConditions_KubectlAndKstatus(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	k := key(ns, "web")
	kstatus := func(name string) status.Status {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, u))
		result, err := status.Compute(u)
		require.NoError(t, err)
		return result.Status
	}
	wait := func(name string, condition runnerapi.ConditionType) {
		kubectl(t, env, "-n", ns, "wait", "apps.pipeops.io/"+name, "--for=condition="+string(condition), "--timeout=60s")
	}
	for _, name := range []string{"web", "taken"} {
		require.NoError(t, env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: web()}))
	}
	assert.Equal(t, status.InProgressStatus, kstatus("web"), "the agent has not seen it")
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "taken"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}},
	}))
	e, _ := start(t, env, ns, nil)
	wait("web", runnerapi.ConditionReconciling)
	assert.Equal(t, status.InProgressStatus, kstatus("web"))
	helm := make(chan error, 1)
	waitForWeb := helmWait(t, env, ns, "web")
	go func() { helm <- waitForWeb() }()
	rollOut(t, env, k)
	wait("web", runnerapi.ConditionReady)
	assert.Equal(t, status.CurrentStatus, kstatus("web"))
	require.NoError(t, await.Receive(t, helm, "helm install --wait"))
	checked, _ := fluxCheck(t, env, ns, "web")
	assert.Equal(t, status.CurrentStatus, checked)
	wait("taken", runnerapi.ConditionStalled)
	assert.Equal(t, status.FailedStatus, kstatus("taken"))
	require.ErrorContains(t, helmWait(t, env, ns, "taken")(), "taken not ready. status: Failed, message: ")
	checked, message := fluxCheck(t, env, ns, "taken")
	assert.Equal(t, status.FailedStatus, checked)
	assert.Contains(t, message, "already exists")
	out, err := env.Cluster.Kubectl(t.Context(), "-n", ns, "get", "apps.pipeops.io", "-o", "wide")
	require.NoError(t, err)
	assert.Regexp(t, `taken .*Conflict .*already exists`, string(out))
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Equal(t, a.Generation, a.Status.Conditions[0].ObservedGeneration)
	assert.NotEmpty(t, a.Status.Conditions[0].LastTransitionTime)
}
