package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestDeploy_DelayedKeepsNewerSpec has each command come again after a newer one:
// from a replica that was held in the middle of it, while another carried it out.
func TestDeploy_DelayedKeepsNewerSpec(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "held")
	as := func(command string) runnerapi.WriteOptions {
		opts := byTest
		opts.Command = command
		return opts
	}
	deploy := func(command, image string) error {
		spec := web()
		spec.Image = image
		_, err := e.Deploy(t.Context(), k, spec, as(command))
		return err
	}
	scale := func(command string, n int32) error {
		_, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: &n}, as(command))
		return err
	}
	require.NoError(t, deploy("first", "example.com/web:1"), "creates it")
	require.NoError(t, deploy("second", "example.com/web:2"))
	require.NoError(t, deploy("first", "example.com/web:1"))
	require.NoError(t, scale("third", 2))
	require.NoError(t, scale("fourth", 3))
	require.NoError(t, scale("third", 2))
	_, err := e.Pause(t.Context(), k, as("fifth"))
	require.NoError(t, err)
	_, err = e.Resume(t.Context(), k, as("sixth"))
	require.NoError(t, err)
	_, err = e.Pause(t.Context(), k, as("fifth"))
	require.NoError(t, err)

	now := get(t, env, k, &v1alpha1.App{})
	assert.Equal(t, "example.com/web:2", now.Spec.Image)
	require.NotNil(t, now.Spec.Replicas)
	assert.EqualValues(t, 3, *now.Spec.Replicas)
	assert.False(t, now.Spec.IsPaused())
	require.NoError(t, deploy("seventh", "example.com/web:1"), "the same again as a command of its own")
	assert.Equal(t, "example.com/web:1", get(t, env, k, &v1alpha1.App{}).Spec.Image)
}

// TestDelete_DelayedSparesNewerApp has a delete go on in a replica that was held in the middle
// of it, after another carried it out and a new App came under the same name.
func TestDelete_DelayedSparesNewerApp(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "held-delete")
	answered := false
	held := byTest
	held.Answered = func(context.Context) (bool, error) { return answered, nil }
	deploy := func() string {
		_, err := e.Deploy(t.Context(), k, web(), byTest)
		require.NoError(t, err)
		return string(get(t, env, k, &v1alpha1.App{}).UID)
	}
	deploy()
	require.NoError(t, e.Delete(t.Context(), k, held))
	answered = true
	newer := deploy()
	require.NoError(t, e.Delete(t.Context(), k, held))
	now := get(t, env, k, &v1alpha1.App{})
	assert.Equal(t, newer, string(now.UID))
	assert.True(t, now.DeletionTimestamp.IsZero())
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}
