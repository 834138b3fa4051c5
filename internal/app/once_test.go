package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// succeed reports of a Job what its controller would once its pod has ended well.
func succeed(t *testing.T, env *kubetest.Env, k runnerapi.Key) {
	t.Helper()
	j, now := &batchv1.Job{}, metav1.NewTime(time.Now())
	eventually(t, "the Job exists", func() bool { return exists(t, env, k, j) })
	j.Status = batchv1.JobStatus{
		StartTime: &now, CompletionTime: &now, Succeeded: 1, Ready: new(int32(0)), UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{},
		Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: now},
		},
	}
	require.NoError(t, env.Client.Status().Update(t.Context(), j))
}

// running returns the App of a run that is not over.
func running(t *testing.T, env *kubetest.Env, k, job runnerapi.Key) *v1alpha1.App {
	t.Helper()
	eventually(t, "it runs", func() bool {
		return exists(t, env, job, &batchv1.Job{}) && get(t, env, k, &v1alpha1.App{}).Status.Made != nil
	})
	return get(t, env, k, &v1alpha1.App{})
}

// gone waits until the agent has removed a Job that has ended.
func gone(t *testing.T, env *kubetest.Env, job runnerapi.Key) {
	t.Helper()
	eventually(t, "its time is up", func() bool { return !exists(t, env, job, &batchv1.Job{}) })
}

// TestJob_FormerLeaderRunsNothing has a Job that ended and was removed while its leader was held.
func TestJob_FormerLeaderRunsNothing(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	for job, spec := range map[string]runnerapi.AppSpec{
		"migrate":      runnerapi.JobSpec{Image: "example.com/web:1", TTLSeconds: new(int32(0))}.AppSpec(),
		"release-only": runnerapi.PipelineSpec{Image: "example.com/web:1", TTLSeconds: new(int32(0)), Jobs: []runnerapi.PipelineJob{{Name: "only"}}}.AppSpec(),
	} {
		k, job := key(ns, job[:7]), key(ns, job)
		deploy(t, e, k, spec)
		held := running(t, env, k, job)
		succeed(t, env, job)
		gone(t, env, job)
		assert.True(t, apierrors.IsConflict(e.Converge(t.Context(), held)), job.Name)
		assert.False(t, exists(t, env, job, &batchv1.Job{}), "%s runs again", job.Name)
		require.NoError(t, e.Converge(t.Context(), get(t, env, k, &v1alpha1.App{})))
	}
}

// TestJob_NewLeaderRunsNothingAgain has a Job whose end the watch of Jobs has not reported yet.
func TestJob_NewLeaderRunsNothingAgain(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Replica = "before"
	before := startReplica(t, config)
	eventually(t, "the first leads", before.Leads)
	config.Replica = "next"
	next := startReplica(t, config)
	t.Cleanup(next.jobs.open)
	once := runnerapi.JobSpec{Image: "example.com/web:1", TTLSeconds: new(int32(0))}
	k, marker := key(ns, "migrate"), key(ns, "marker")

	deploy(t, before.Engine, k, once.AppSpec())
	running(t, env, k, k)
	eventually(t, "the next one knows the run", func() bool { return next.Caches(t.Context(), k, &batchv1.Job{}) })
	next.jobs.close()
	succeed(t, env, k)
	settledIn(t, next.Engine, k, runnerapi.PhaseHealthy)
	gone(t, env, k)
	before.StepDown()
	eventually(t, "the next one leads", next.Leads)
	require.NoError(t, next.Reconcile(t.Context(), k))
	assert.Equal(t, runnerapi.PhaseHealthy, get(t, env, k, &v1alpha1.App{}).Status.Phase, "by a Job that seems to run")

	next.jobs.open()
	deploy(t, next.Engine, marker, once.AppSpec())
	succeed(t, env, marker)
	gone(t, env, marker)
	require.NoError(t, next.Reconcile(t.Context(), k))
	assert.Equal(t, runnerapi.PhaseHealthy, get(t, env, k, &v1alpha1.App{}).Status.Phase)
	assert.False(t, exists(t, env, k, &batchv1.Job{}), "it runs again")
}

// The watch of Jobs may lag behind that of Apps.
func TestJob_UncachedIsNotDrift(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	k := key(ownNamespace(t, env), "migrate")
	r := startReplica(t, limitedTo(env, k.Namespace))
	t.Cleanup(r.jobs.open)
	eventually(t, "it leads", r.Leads)
	r.jobs.close()
	deploy(t, r.Engine, k, runnerapi.JobSpec{Image: "example.com/web:1"}.AppSpec())
	running(t, env, k, k)
	require.NoError(t, r.Reconcile(t.Context(), k))
	require.False(t, r.Caches(t.Context(), k, &batchv1.Job{}))
	assert.Zero(t, driftOf(t, r.Engine, k).Corrections)
}
