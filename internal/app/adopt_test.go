package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

var adopting = runnerapi.WriteOptions{Caller: byTest.Caller, Adopt: true}

// TestAdopt_KeepsPods adopts a Deployment that an App left behind.
func TestAdopt_KeepsPods(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, stop := start(t, env, ns, nil)
	k := key(ns, "kept")
	spec := runnerapi.AppSpec{Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080)}
	deploy(t, e, k, spec)
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)
	stop()
	for _, o := range []client.Object{get(t, env, k, &appsv1.Deployment{}), get(t, env, k, &corev1.Service{})} {
		o.SetOwnerReferences(nil)
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		require.NoError(t, env.Client.Update(t.Context(), o))
	}
	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, k, &v1alpha1.App{})))
	pods := func() (ids []apitypes.UID) {
		var list corev1.PodList
		require.NoError(t, env.Client.List(t.Context(), &list, client.InNamespace(ns)))
		for _, pod := range list.Items {
			ids = append(ids, pod.UID)
		}
		return ids
	}
	before := pods()
	require.Len(t, before, 1)

	e, _ = start(t, env, ns, nil)
	adopted, err := e.Deploy(t.Context(), k, spec, adopting)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, adopted.Generation).Status.Phase)
	assert.Equal(t, before, pods())
	assert.NotEmpty(t, get(t, env, k, &appsv1.Deployment{}).OwnerReferences)
}
