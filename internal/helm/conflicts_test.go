package helm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestHelmRelease_TakesOverFields expects it of no command that does not ask for it.
func TestHelmRelease_TakesOverFields(t *testing.T) {
	suite.Release(t, "fields of others in a release")
	env := kubetest.ControlPlane(t)
	r := start(t, env.Agent)
	remove(t, env, "shared")
	greets := func(greeting string) runnerapi.ReleaseSpec { return of(guide(t), map[string]any{"greeting": greeting}) }
	meddle := func() {
		_, err := env.Cluster.Kubectl(t.Context(), "-n", production, "annotate", "--overwrite", "service", "shared", "greeting=theirs")
		require.NoError(t, err)
	}
	deploy(t, r, "shared", greets("first"))
	meddle()
	_, err := r.Deploy(t.Context(), key("shared"), greets("second"), byTest)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeConflict, p.Code)
	assert.Contains(t, p.Detail, "others have set fields of it: kubectl-annotate has metadata.annotations.greeting")
	assert.Contains(t, p.Fix, "--force-conflicts")

	forced := greets("second")
	forced.ForceConflicts = true
	assert.Equal(t, runnerapi.ReleaseDeployed, deploy(t, r, "shared", forced).Status)
	s, err := service(t, env, "shared")
	require.NoError(t, err)
	assert.Equal(t, "second", s.Annotations["greeting"])

	meddle()
	_, err = r.Rollback(t.Context(), key("shared"), runnerapi.ReleaseRollback{Revision: 1}, byTest)
	assert.Contains(t, problemOf(t, err).Detail, "kubectl-annotate has metadata.annotations.greeting")
	_, err = r.Rollback(t.Context(), key("shared"), runnerapi.ReleaseRollback{Revision: 1, ForceConflicts: true}, byTest)
	require.NoError(t, err)
	outcome(t, r, "shared")
	s, err = service(t, env, "shared")
	require.NoError(t, err)
	assert.Equal(t, "first", s.Annotations["greeting"])
}
