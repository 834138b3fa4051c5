package app_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// ends are arguments of test/apps/hello, which says so and ends with that code.
func ends(code string) []string { return []string{"-crash-after=50ms", "-exit-code=" + code} }

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
