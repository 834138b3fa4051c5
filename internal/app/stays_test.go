package app_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// crashesLater crashes when it has been ready for longer than it must.
var crashesLater = []string{"-crash-after=4s"}

// TestHealthy_EndsWithLateCrash expects that an automatic rollback does not go back to the revision
// either.
func TestHealthy_EndsWithLateCrash(t *testing.T) {
	suite.Release(t, "further failures, with the times that agents have by default")
	t.Parallel()
	env := kubetest.Full(t)
	k := key(ownNamespace(t, env), "late")
	e, _ := start(t, env, k.Namespace, nil)
	good := runnerapi.AppSpec{Image: helloImage(t, env), Rollback: runnerapi.RollbackOnFailure}
	first := settled(t, e, k, deploy(t, e, k, good).Generation)
	require.Equal(t, runnerapi.PhaseHealthy, first.Status.Phase)

	late := good
	late.Args = crashesLater
	second := settled(t, e, k, deploy(t, e, k, late).Generation)
	require.Equal(t, runnerapi.PhaseHealthy, second.Status.Phase, "it stayed ready for as long as it had to")
	heard := follow(t, e, k)
	within(t, podPatience, "its crashes are told", func() bool { return heard.first(diagnosed(runnerapi.CauseCrashLoop)) != nil })
	within(t, podPatience, "its revision is not called healthy any more", func() bool {
		return slices.ContainsFunc(revisions(t, e, k), func(r runnerapi.Revision) bool {
			return r.Revision == second.Status.Revision && !r.Healthy
		})
	})
	now, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Equal(t, crashesLater, now.Spec.Args, "its rollout succeeded, and is not taken back")

	bad := good
	bad.Image = "apps.test/no-such-image:1"
	failed := deploy(t, e, k, bad)
	within(t, podPatience, "the agent goes back", func() bool {
		now, err = e.Get(t.Context(), k)
		return err == nil && now.Undone(failed.Generation) != nil && now.Settled() && now.Status.Phase == runnerapi.PhaseHealthy
	})
	assert.Equal(t, first.Status.Revision, now.Status.Undone.Restored, "to the last revision that did not crash")
	assert.Empty(t, now.Spec.Args)
}
