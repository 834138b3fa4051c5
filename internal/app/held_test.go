package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestDelete_ReportsFinalizers(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "held")
	deploy(t, e, k, web())
	a := get(t, env, k, &v1alpha1.App{})
	finalizers := func(patch string) {
		require.NoError(t, env.Client.Patch(t.Context(), a, client.RawPatch(apitypes.JSONPatchType, []byte(patch))))
	}
	eventually(t, "the agent's own finalizer", func() bool { return len(get(t, env, k, a).Finalizers) == 1 })
	finalizers(`[{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/backup"}]`)
	done := make(chan error, 1)
	go func() { done <- e.Delete(t.Context(), k, byTest) }()
	eventually(t, "what holds it is told", func() bool {
		now, err := e.Get(t.Context(), k)
		return err == nil && now.Status.WaitingFor == "finalizers of others on the App: example.com/backup"
	})
	finalizers(`[{"op": "remove", "path": "/metadata/finalizers"}]`)
	require.NoError(t, await.Receive(t, done, "the end of the deletion"))
	eventually(t, "it is gone", func() bool { _, err := e.Get(t.Context(), k); return code(err) == runnerapi.CodeNotFound })
}
