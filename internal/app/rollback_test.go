package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// settledIn waits until the App is settled in a phase.
func settledIn(t *testing.T, e *app.Engine, k runnerapi.Key, phase runnerapi.Phase) runnerapi.App {
	t.Helper()
	var a runnerapi.App
	eventually(t, "the App is "+string(phase), func() bool {
		var err error
		a, err = e.Get(t.Context(), k)
		return err == nil && a.Settled() && a.Status.Phase == phase
	})
	return a
}

// outcome is that of a command that was answered with a.
func outcome(t *testing.T, e *app.Engine, command string, a runnerapi.App) runnerapi.Outcome {
	t.Helper()
	o, err := e.Outcome(t.Context(), backend.Record{
		Command: command, Target: key(a.Namespace, a.Name), Done: true,
		App: &backend.AppMark{UID: a.UID, Generation: a.Generation, Restart: a.RestartedAt},
	})
	require.NoError(t, err)
	return o
}

// failRollout says of the Deployment that runs an image what its controller
// would when its time is up.
func failRollout(t *testing.T, env *kubetest.Env, k runnerapi.Key, image string) {
	t.Helper()
	d := &appsv1.Deployment{}
	eventually(t, "the deployment of "+image, func() bool {
		return exists(t, env, k, d) && d.Spec.Template.Spec.Containers[0].Image == image
	})
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
	}}}
	require.NoError(t, env.Client.Status().Update(t.Context(), d))
}

func TestRollback_OnceAfterFailure(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r := &receiver{}
	e, _ := start(t, env, ns, r.take)
	k := key(ns, "undone")
	good, bad := image("good"), image("bad")
	good.Rollback, bad.Rollback = runnerapi.RollbackOnFailure, runnerapi.RollbackOnFailure
	first := deploy(t, e, k, good)
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)

	failed := deploy(t, e, k, bad)
	_, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(2))}, byTest)
	require.NoError(t, err)
	eventually(t, "the deployment is scaled", func() bool { return *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas == 2 })
	failRollout(t, env, k, bad.Image)
	eventually(t, "the App is what was healthy", func() bool {
		a := get(t, env, k, &v1alpha1.App{})
		return a.Spec.Image == good.Image && *a.Spec.Replicas == 2 && a.Status.ObservedGeneration == a.Generation
	})
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	require.NotNil(t, a.Status.Undone, "the status says what was undone")
	assert.EqualValues(t, 2, a.Status.Undone.Revision)
	assert.EqualValues(t, 1, a.Status.Undone.Restored)
	assert.Equal(t, runnerapi.CauseDeadlinePassed, a.Status.Undone.Diagnosis.Cause)
	assert.NotNil(t, a.Undone(failed.Generation))
	assert.Nil(t, a.Undone(a.Generation))
	list := revisions(t, e, k)
	assert.EqualValues(t, 2, list[0].Undid)
	assert.EqualValues(t, 1, list[0].Restores)
	assert.True(t, list[2].Healthy)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, e, "put-app", first).State)
	assert.Equal(t, runnerapi.OperationSuperseded, outcome(t, e, "put-app", failed).State, "the scale came before its outcome")
	failed.Generation++
	scaled := outcome(t, e, "scale-app", failed)
	assert.Equal(t, runnerapi.OperationFailed, scaled.State)
	assert.Contains(t, scaled.Message, "went back")

	failRollout(t, env, k, good.Image)
	settledIn(t, e, k, runnerapi.PhaseFailed)
	assert.Equal(t, a.Generation, get(t, env, k, &v1alpha1.App{}).Generation, "what was gone back to is not taken back again")
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)
	eventually(t, "the control plane hears of it", func() bool {
		sent := r.of(k.Name)
		last := sent[len(sent)-1]
		return last.Type == events.Healthy && last.Cause == runnerapi.CauseDeadlinePassed
	})
	deploy(t, e, k, image("next"))
	eventually(t, "a new rollout is a new story", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Revision == a.Generation && a.Status.Undone == nil
	})
}

func TestRollback_WithoutTargetStaysFailed(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "first-fails")
	spec := image("bad")
	spec.Rollback = runnerapi.RollbackOnFailure
	a := deploy(t, e, k, spec)
	failRollout(t, env, k, spec.Image)
	settledIn(t, e, k, runnerapi.PhaseFailed)
	o := outcome(t, e, "put-app", a)
	assert.Equal(t, runnerapi.OperationFailed, o.State)
	assert.Equal(t, runnerapi.CauseDeadlinePassed, o.Diagnosis.Cause)
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, e, "put-app", a).State, "a failure that mends itself was none")
}

func TestOutcome_SurvivesRestart(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	first, stop := start(t, env, ns, nil)
	k := key(ns, "outlives")
	deployed := deploy(t, first, k, image("1"))
	assert.Equal(t, runnerapi.OperationPending, outcome(t, first, "put-app", deployed).State)
	rollOut(t, env, k)
	settledIn(t, first, k, runnerapi.PhaseHealthy)
	restarted, err := first.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	stop()

	second, _ := start(t, env, ns, nil)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, second, "put-app", deployed).State)
	eventually(t, "the restart reaches the deployment", func() bool {
		return get(t, env, k, &appsv1.Deployment{}).Spec.Template.Annotations["pipeops.io/restarted-at"] == restarted.RestartedAt
	})
	assert.Equal(t, runnerapi.OperationPending, outcome(t, second, "restart-app", restarted).State)
	rollOut(t, env, k)
	settledIn(t, second, k, runnerapi.PhaseHealthy)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, second, "restart-app", restarted).State)
	require.NoError(t, second.Delete(t.Context(), k, byTest))
	assert.Equal(t, runnerapi.OperationSuperseded, outcome(t, second, "put-app", deployed).State)
	o, err := second.Outcome(t.Context(), backend.Record{Command: "delete-app", Target: k, Done: true})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationSucceeded, o.State)
}

func TestOutcome_EventPerChange(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "watched")
	deploy(t, e, k, image("1"))
	events := make(chan runnerapi.AppEvent, 100)
	done := make(chan error, 1)
	go func() {
		done <- e.Events(t.Context(), k, runnerapi.EventOptions{}, func(ev runnerapi.AppEvent) error { events <- ev; return nil })
	}()
	rollOut(t, env, k)
	require.NoError(t, await.Receive(t, done, "the end of the events, when the App has settled"))
	close(events)
	var all []runnerapi.AppEvent
	for ev := range events {
		for _, earlier := range all {
			assert.NotEqual(t, earlier.ID, ev.ID)
		}
		all = append(all, ev)
	}
	require.GreaterOrEqual(t, len(all), 2)
	assert.Equal(t, runnerapi.EventPhase, all[0].Type)
	last := all[len(all)-1]
	assert.True(t, last.Settled)
	assert.Equal(t, runnerapi.PhaseHealthy, last.Status.Phase)

	other, _ := start(t, env, ns, nil)
	err := other.Events(t.Context(), k, runnerapi.EventOptions{After: last.ID}, func(ev runnerapi.AppEvent) error {
		t.Errorf("sent again: %+v", ev)
		return nil
	})
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	following := make(chan runnerapi.AppEvent, 100)
	go func() {
		done <- e.Events(ctx, k, runnerapi.EventOptions{Follow: true}, func(ev runnerapi.AppEvent) error { following <- ev; return nil })
	}()
	assert.True(t, await.Receive(t, following, "the event of now").Settled)
	require.NoError(t, e.Delete(t.Context(), k, byTest))
	require.NoError(t, await.Receive(t, done, "the end of the events, when the App is gone"))
	close(following)
	var end runnerapi.AppEvent
	for end = range following {
	}
	assert.Equal(t, runnerapi.EventRemoved, end.Type)
}
