package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestRollback_RealRollout lets a real node find out that an image is missing.
func TestRollback_RealRollout(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	good := runnerapi.AppSpec{
		Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080), Rollback: runnerapi.RollbackOnFailure,
	}
	k := key(ownNamespace(t, env), "taken-back")
	e, _ := start(t, env, k.Namespace, nil)
	a := deploy(t, e, k, good)
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, a.Generation).Status.Phase)
	bad := good
	bad.Image = "apps.test/no-such-image:1"
	failed := deploy(t, e, k, bad)
	began := time.Now()
	within(t, podPatience, "what was healthy is back", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Undone(failed.Generation) != nil && a.Settled() && a.Status.Phase == runnerapi.PhaseHealthy
	})
	t.Logf("healthy again %s after the deploy that failed", time.Since(began).Round(time.Millisecond))
	now, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.CauseImageNotFound, now.Status.Undone.Diagnosis.Cause, now.Status.Undone.Diagnosis.Message)
	assert.Equal(t, good.Image, now.Spec.Image)
	assert.Equal(t, runnerapi.OperationFailed, outcome(t, e, "put-app", failed).State)
}
