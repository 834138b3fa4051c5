package app_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
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

// TestJob_RetriedIsNotFailed looks while Kubernetes waits before the next try.
func TestJob_RetriedIsNotFailed(t *testing.T) {
	suite.Release(t, "further failures, with the times that agents have by default")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	image, once := helloImage(t, env), new(int32(1))
	specs := map[string]runnerapi.AppSpec{
		"job": runnerapi.JobSpec{Image: image, Args: ends("3"), Retries: once}.AppSpec(),
		"pipeline": runnerapi.PipelineSpec{
			Image: image, Retries: once, Jobs: []runnerapi.PipelineJob{{Name: "only", Args: ends("3")}},
		}.AppSpec(),
	}
	heard := map[string]*told{}
	for name, spec := range specs {
		deploy(t, e, key(ns, name), spec)
		heard[name] = follow(t, e, key(ns, name))
	}
	for name := range specs {
		a := settled(t, e, key(ns, name), 1)
		assert.Equal(t, runnerapi.PhaseFailed, a.Status.Phase)
		tries := a.Status.Runs[0].Tries
		if name == "pipeline" {
			tries = a.Status.Jobs[0].Tries
		}
		assert.EqualValues(t, 2, tries, "the wait has lasted until the last try")
		of := func(s runnerapi.AppStatus) runnerapi.JobState {
			a := runnerapi.App{Namespace: ns, Name: name, Generation: 1, Spec: specs[name], Status: s}
			if name == "pipeline" {
				return runnerapi.PipelineOf(a).Status.State
			}
			return runnerapi.JobOf(a).Status.State
		}
		failed := func(s runnerapi.AppStatus) bool { return s.Phase == runnerapi.PhaseFailed }
		eventually(t, "its end is told", func() bool { return heard[name].first(failed) != nil })
		end := heard[name].first(failed)
		assert.Equal(t, runnerapi.JobFailed, of(end.Status), "%s: nothing says that it failed before it did", name)
		assert.NotNil(t, heard[name].first(func(s runnerapi.AppStatus) bool { return of(s) == runnerapi.JobRunning }), name)
		assert.Nil(t, heard[name].first(func(s runnerapi.AppStatus) bool { return of(s) == runnerapi.JobBlocked }), name)
	}
}

// TestInitContainer_HangingIsNamed expects the last line, also while pods of an older spec serve.
func TestInitContainer_HangingIsNamed(t *testing.T) {
	suite.Release(t, "further failures, with the times that agents have by default")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	var ahead atomic.Int64
	e, _ := startWith(t, limitedTo(env, ns), func(e *app.Engine) {
		e.Clock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	})
	image := helloImage(t, env)
	for name, spec := range map[string]runnerapi.AppSpec{
		"rolling": {Image: image},
		"set":     {Image: image, Type: runnerapi.TypeStatefulSet},
		"daemons": {Image: image, Type: runnerapi.TypeDaemonSet},
	} {
		t.Run(name, func(t *testing.T) {
			k := key(ns, name)
			ahead.Store(0)
			require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, deploy(t, e, k, spec).Generation).Status.Phase)
			ahead.Store(int64(time.Minute)) // what begins now has run for so long
			spec.InitContainers = []runnerapi.InitContainer{{Name: "migrate", Args: []string{"-lines=1"}}}
			deploy(t, e, k, spec)
			var a runnerapi.App
			named := func() bool {
				var err error
				a, err = e.Get(t.Context(), k)
				return err == nil && waitsForInit(a)
			}
			if !polled(podPatience, named) {
				require.Fail(t, "the init container is not named", "%s: %s", a.Status.Phase, a.Status.WaitingFor)
			}
			if spec.Type == "" {
				return // Kubernetes keeps the deadline of a Deployment, by its own clock
			}
			ahead.Store(int64(15 * time.Minute))
			within(t, podPatience, "its deadline passes", syncing(t, env, ns, func() bool {
				a, err := e.Get(t.Context(), k)
				d := a.Status.Diagnosis
				return err == nil && d != nil && d.Cause == runnerapi.CauseDeadlinePassed && d.Container == "migrate" && len(d.LastLines) > 0
			}))
		})
	}
}

func waitsForInit(a runnerapi.App) bool {
	w := a.Status.WaitingFor
	return contains(w, "init container migrate of pod "+a.Name, "to end: it has run since", "its last line: ")
}

// TestRollout_NamesUnreadyPod has ready pods of the older spec.
func TestRollout_NamesUnreadyPod(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	k := key(ownNamespace(t, env), "slow")
	e, _ := start(t, env, k.Namespace, nil)
	spec := runnerapi.AppSpec{Image: helloImage(t, env), Probes: ready(8080)}
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, deploy(t, e, k, spec).Generation).Status.Phase)
	spec.Probes.Startup.FailureThreshold = 600
	spec.Args = []string{"-start-delay=10m"}
	deploy(t, e, k, spec)
	heard := follow(t, e, k)
	within(t, podPatience, "the new pod is named", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && contains(a.Status.WaitingFor, "1 of 1 pods of the newest spec to become ready", "container slow of pod slow-")
	})
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(k.Namespace)))
	require.Len(t, pods.Items, 2, "the old one serves")
	assert.Nil(t, heard.first(func(s runnerapi.AppStatus) bool { return s.WaitingFor == "pods of an older spec to stop" }))
}
