package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// ends are arguments of test/apps/hello, which says so and ends with that code.
func ends(code string) []string { return []string{"-crash-after=50ms", "-exit-code=" + code} }

func states(p runnerapi.Pipeline) []runnerapi.JobState {
	var out []runnerapi.JobState
	for _, j := range p.Status.Jobs {
		out = append(out, j.State)
	}
	return out
}

// TestPipeline_StopsAtFailure has one job fail. Another agent runs the mended Pipeline again, which
// the first left in the middle.
func TestPipeline_StopsAtFailure(t *testing.T) {
	suite.Release(t, "further lives of Jobs and Pipelines")
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	ns := ownNamespace(t, env)
	e, stop := start(t, env, ns, nil)
	k := key(ns, "release")
	none := new(int32(0))
	spec := runnerapi.PipelineSpec{
		Image: image, Retries: none,
		Jobs: []runnerapi.PipelineJob{{Name: "test", Args: ends("0")}, {Name: "migrate", Args: ends("7")}, {Name: "deploy", Args: ends("0")}},
	}
	log := followUntilDone(t, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		deploy(t, e, k, spec.AppSpec())
		return e.Logs(ctx, k, runnerapi.LogOptions{Follow: true, Tail: -1, UntilDone: true}, emit)
	})
	p := runnerapi.PipelineOf(settled(t, e, k, 1))
	assert.Equal(t, runnerapi.JobFailed, p.Status.State)
	assert.Equal(t, "migrate", p.Status.FailedJob)
	assert.Equal(t, []runnerapi.JobState{runnerapi.JobSucceeded, runnerapi.JobFailed, runnerapi.JobNotRun}, states(p))
	require.NotNil(t, p.Status.Diagnosis)
	assert.Equal(t, runnerapi.CauseJobFailed, p.Status.Diagnosis.Cause)
	require.NotNil(t, p.Status.Jobs[1].ExitCode)
	assert.EqualValues(t, 7, *p.Status.Jobs[1].ExitCode)
	assert.Contains(t, strings.Join(p.Status.Diagnosis.LastLines, "\n"), "crashing on purpose")
	assert.False(t, exists(t, env, key(ns, "release-deploy"), &batchv1.Job{}))
	assert.Contains(t, log, "release-test-", "the log ends with the Pipeline, and has both jobs")
	assert.Contains(t, log, "release-migrate-")

	// Mended: it begins again, and the agent that began it does not end it.
	spec.Jobs[0].Args, spec.Jobs[1].Args = []string{"-crash-after=3s", "-exit-code=0"}, ends("0")
	failed := get(t, env, key(ns, "release-test"), &batchv1.Job{}).UID
	mended := deploy(t, e, k, spec.AppSpec())
	within(t, podPatience, "the first job runs again", func() bool {
		j := &batchv1.Job{}
		return env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "release-test"}, j) == nil && j.UID != failed && j.Status.Active == 1
	})
	stop()
	e, _ = start(t, env, ns, nil)
	p = runnerapi.PipelineOf(settled(t, e, k, mended.Generation))
	assert.Equal(t, runnerapi.JobSucceeded, p.Status.State, "%+v", p.Status)
	assert.NotNil(t, p.Status.FinishedAt)
	ran := get(t, env, key(ns, "release-test"), &batchv1.Job{}).UID

	again := deploy(t, e, k, spec.AppSpec())
	assert.Equal(t, mended.Generation, again.Generation, "the same again")
	out, err := env.Cluster.Kubectl(t.Context(), "-n", ns, "delete", "job", "release-migrate")
	require.NoError(t, err, string(out))
	assert.Equal(t, runnerapi.JobSucceeded, runnerapi.PipelineOf(settled(t, e, k, again.Generation)).Status.State)
	assert.Equal(t, ran, get(t, env, key(ns, "release-test"), &batchv1.Job{}).UID)
	assert.False(t, exists(t, env, key(ns, "release-migrate"), &batchv1.Job{}), "what ended does not run again")

	spec.Run, spec.TTLSeconds = "another", none
	anew := deploy(t, e, k, spec.AppSpec())
	p = runnerapi.PipelineOf(settled(t, e, k, anew.Generation))
	assert.Equal(t, runnerapi.JobSucceeded, p.Status.State, "a run of another name: %+v", p.Status)
	for _, name := range []string{"release-test", "release-migrate", "release-deploy"} {
		within(t, podPatience, "its time is up", func() bool { return !exists(t, env, key(ns, name), &batchv1.Job{}) })
	}
	p = runnerapi.PipelineOf(settled(t, e, k, anew.Generation))
	assert.Equal(t, []runnerapi.JobState{runnerapi.JobSucceeded, runnerapi.JobSucceeded, runnerapi.JobSucceeded}, states(p), "the outcome stays")
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}

// TestJob_Rerun tells runs of the same spec apart, by the log of each try.
func TestJob_Rerun(t *testing.T) {
	suite.Release(t, "further lives of Jobs and Pipelines")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "migrate")
	spec := runnerapi.JobSpec{Image: helloImage(t, env), Args: ends("3"), Retries: new(int32(1)), Run: "one"}
	log := followUntilDone(t, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		deploy(t, e, k, spec.AppSpec())
		return e.Logs(ctx, k, runnerapi.LogOptions{Follow: true, Tail: -1, UntilDone: true}, emit)
	})
	j := runnerapi.JobOf(settled(t, e, k, 1))
	require.Equal(t, runnerapi.JobFailed, j.Status.State, "%+v", j.Status)
	assert.EqualValues(t, 2, j.Status.Tries)
	assert.EqualValues(t, 3, *j.Status.ExitCode)
	assert.Equal(t, 2, strings.Count(log, "crashing on purpose"), "both tries, to their ends: %s", log)
	first := get(t, env, k, &batchv1.Job{}).UID

	spec.Run, spec.Retries = "two", new(int32(0))
	again := deploy(t, e, k, spec.AppSpec())
	j = runnerapi.JobOf(settled(t, e, k, again.Generation))
	assert.Equal(t, runnerapi.JobFailed, j.Status.State)
	assert.EqualValues(t, 1, j.Status.Tries)
	assert.NotEqual(t, first, get(t, env, k, &batchv1.Job{}).UID)
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}

// followUntilDone follows a log that ends by itself, and answers what it was.
func followUntilDone(t *testing.T, read func(context.Context, func(runnerapi.LogLine) error) error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podPatience)
	t.Cleanup(cancel)
	var text strings.Builder
	began := time.Now()
	err := read(ctx, func(l runnerapi.LogLine) error {
		text.WriteString(l.Pod + " " + l.Line + "\n")
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "it did not end after %s", time.Since(began))
	return text.String()
}
