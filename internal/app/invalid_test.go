package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestInvalidSpec_FoundByCluster is of a spec that only Kubernetes itself can
// tell to be wrong.
func TestInvalidSpec_FoundByCluster(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	k := key(ownNamespace(t, env), "nightly")
	e, _ := start(t, env, k.Namespace, nil)
	spec := runnerapi.AppSpec{
		Image: "example.com/web:1", Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "0 25 * * *", TimeZone: "Etc/UTC"},
	}
	_, err := e.Deploy(t.Context(), k, spec, runnerapi.WriteOptions{DryRun: true})
	assert.Equal(t, runnerapi.CodeInvalid, code(err), "a dry run asks the cluster")
	deploy(t, e, k, spec)
	eventually(t, "the App says what is wrong", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseFailed && a.Status.Diagnosis != nil &&
			a.Status.Diagnosis.Cause == runnerapi.CauseInvalidSpec
	})
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Contains(t, a.Status.Diagnosis.Message, "schedule")
	t.Logf("%s; fix: %s", a.Status.Diagnosis.Message, a.Status.Diagnosis.Fix)
	kubectl(t, env, "-n", k.Namespace, "patch", "apps.pipeops.io", k.Name, "--type=merge", "-p", `{"spec":{"schedule":{"cron":"0 5 * * *"}}}`)
	eventually(t, "corrected, it is made", func() bool { return exists(t, env, k, &batchv1.CronJob{}) })
	eventually(t, "and healthy again", func() bool { return phaseOf(t, e, k) != runnerapi.PhaseFailed })
}

func phaseOf(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Phase {
	t.Helper()
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	return a.Status.Phase
}
