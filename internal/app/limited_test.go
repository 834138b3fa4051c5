package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestEngine_LimitedToNamespaces has an agent that was given two namespaces keep Apps
// true there, and keep out of a third, though that carries its label too.
func TestEngine_LimitedToNamespaces(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	first, second, beyond := ownNamespace(t, env), ownNamespace(t, env), ownNamespace(t, env)
	seen := &receiver{}
	config := limitedTo(env, first, second)
	config.Announce = seen.take
	e, _ := startWith(t, config)
	for _, ns := range []string{first, second} {
		deploy(t, e, key(ns, "limited"), web())
		rollOut(t, env, key(ns, "limited"))
	}
	_, err := e.Deploy(t.Context(), key(beyond, "limited"), web(), byTest)
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, code(err))
	_, err = e.Get(t.Context(), key(beyond, "limited"))
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, code(err))

	apps, err := e.List(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, apps, 2)
	eventually(t, "both are announced", func() bool { return len(seen.of("limited")) >= 2 })
	for _, ns := range []string{first, second} {
		require.NoError(t, e.Delete(t.Context(), key(ns, "limited"), byTest))
	}
}
