package server_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Replicas and autoscaling count as one field.
func TestDeploy_KeepsUnnamedFields(t *testing.T) {
	t.Parallel()
	bounds := &runnerapi.Autoscaling{Min: 2, Max: 5}
	for name, c := range map[string]struct{ named, has, want runnerapi.AppSpec }{
		"nothing is named": {
			runnerapi.AppSpec{Image: "b"},
			runnerapi.AppSpec{Image: "a", Replicas: new(int32(5)), Autoscaling: bounds, Paused: new(true), Command: []string{"x"}},
			runnerapi.AppSpec{Image: "b", Replicas: new(int32(5)), Autoscaling: bounds, Paused: new(true)},
		},
		"a number of pods": {
			runnerapi.AppSpec{Replicas: new(int32(0))}, runnerapi.AppSpec{Replicas: new(int32(2)), Autoscaling: bounds, Paused: new(true)},
			runnerapi.AppSpec{Replicas: new(int32(0)), Paused: new(true)},
		},
		"autoscaling": {
			runnerapi.AppSpec{Autoscaling: bounds}, runnerapi.AppSpec{Replicas: new(int32(9))}, runnerapi.AppSpec{Autoscaling: bounds},
		},
		"no pause": {
			runnerapi.AppSpec{Paused: new(false)}, runnerapi.AppSpec{Replicas: new(int32(3)), Paused: new(true)},
			runnerapi.AppSpec{Replicas: new(int32(3))},
		},
		"a new App": {runnerapi.AppSpec{Image: "a", Paused: new(false)}, runnerapi.AppSpec{}, runnerapi.AppSpec{Image: "a"}},
	} {
		assert.Equal(t, c.want, c.named.KeepUnnamed(c.has), name)
	}
}

// The Go client needs no option for it, and the policy is asked about the kept scale.
func TestDeploy_KeepsScale(t *testing.T) {
	t.Parallel()
	policy := newAsked(func(i runnerapi.Intent) error {
		if i.App != nil && i.App.Replicas != nil && *i.App.Replicas > 5 {
			return runnerapi.PolicyDenied("stay within it", "at most 5 pods")
		}
		return nil
	})
	client, ctx := governed(t, policy).Client(), ctxFor(t)
	_, err := client.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = client.Apps().Scale(ctx, web, runnerapi.Scale{Replicas: new(int32(5))}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = client.Apps().Pause(ctx, web, runnerapi.WriteOptions{})
	require.NoError(t, err)
	app, err := client.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a:2"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.AppSpec{Type: app.Spec.Type, Image: "a:2", Replicas: new(int32(5)), Paused: new(true)}, app.Spec)

	_, err = client.Apps().Scale(ctx, web, runnerapi.Scale{Replicas: new(int32(8))}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = client.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a:3"}, runnerapi.WriteOptions{})
	assert.Equal(t, runnerapi.CodePolicyDenied, codeOf(t, err), "what stays is more than the policy allows")
	_, err = client.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a:3", Replicas: new(int32(4)), Paused: new(bool)}, runnerapi.WriteOptions{})
	require.NoError(t, err)
}
