package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestLeader_FormerUndoesNothing has a former leader that goes on with an outdated App.
func TestLeader_FormerUndoesNothing(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	k := key(ownNamespace(t, env), "web")
	e, _ := start(t, env, k.Namespace, nil)
	spec := runnerapi.AppSpec{Image: "example.com/web:1", Replicas: new(int32(2))}
	followed := func(generation int64) (*v1alpha1.App, *appsv1.Deployment) {
		t.Helper()
		eventually(t, "the Deployment follows", func() bool {
			return exists(t, env, k, &appsv1.Deployment{}) && get(t, env, k, &appsv1.Deployment{}).Generation == generation
		})
		return get(t, env, k, &v1alpha1.App{}), get(t, env, k, &appsv1.Deployment{})
	}
	deploy(t, e, k, spec)
	first, firstWorkload := followed(1)
	spec.Image = "example.com/web:2"
	deploy(t, e, k, spec)
	second, _ := followed(2)
	_, err := e.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	third, _ := followed(3)

	assert.True(t, apierrors.IsConflict(e.Converge(t.Context(), first)), "the spec before")
	assert.True(t, apierrors.IsConflict(e.Converge(t.Context(), second)), "before the restart")
	assert.True(t, apierrors.IsConflict(e.ApplyOver(t.Context(), third, firstWorkload)), "a request that was under way for long")
	followed(3)
	require.NoError(t, e.Converge(t.Context(), third))
}
