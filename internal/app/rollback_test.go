package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	env, e, k := onControlPlane(t, "first-fails")
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
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, e, "put-app", a).State, "a failure that fixes itself was none")
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
	env, e, k := onControlPlane(t, "watched")
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

	other, _ := start(t, env, k.Namespace, nil)
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

func revisions(t *testing.T, e *app.Engine, k runnerapi.Key) []runnerapi.Revision {
	t.Helper()
	list, err := e.Revisions(t.Context(), k)
	require.NoError(t, err)
	return list
}

func numbers(list []runnerapi.Revision) []int64 {
	var out []int64
	for _, r := range list {
		out = append(out, r.Revision)
	}
	return out
}

func image(tag string) runnerapi.AppSpec {
	spec := web()
	spec.Image = "example.com/web:" + tag
	return spec
}

func TestRevisions_RecordAuthorAndDifference(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "told")
	deploy(t, e, k, image("1"))
	_, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(3))}, byTest)
	require.NoError(t, err)
	_, err = e.Pause(t.Context(), k, byTest)
	require.NoError(t, err)
	_, err = e.Resume(t.Context(), k, byTest)
	require.NoError(t, err)
	second := image("2")
	second.Replicas = new(int32(3))
	second.Env[0].Value, second.Args = "hunter2", []string{"--token=hunter3"}
	deploy(t, e, k, second)
	deploy(t, e, k, second)

	list := revisions(t, e, k)
	require.Equal(t, []int64{5, 1}, numbers(list), "scaling, pausing and repeating make none")
	assert.True(t, list[0].Current)
	assert.Equal(t, "tester", list[0].Runner)
	assert.Equal(t, "req-1", list[0].RequestID)
	assert.False(t, list[0].CreatedAt.IsZero())
	assert.Equal(t, []runnerapi.Change{
		{Field: "args", Kind: "added"}, {Field: "env[A]", Kind: "changed"},
		{Field: "image", Kind: "changed", From: "example.com/web:1", To: "example.com/web:2"},
	}, list[0].Changes)
	raw, err := json.Marshal(list)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "hunter")

	byHand := []byte(`{"spec":{"image":"example.com/web:by-hand"}}`)
	require.NoError(t, env.Client.Patch(t.Context(), get(t, env, k, &v1alpha1.App{}), client.RawPatch(apitypes.MergePatchType, byHand)))
	eventually(t, "what kubectl did is kept too", func() bool { return len(revisions(t, e, k)) == 3 })
	assert.Empty(t, revisions(t, e, k)[0].Runner, "and nobody is blamed for it")
}

func TestRollback_ToAnyRevision(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "back")
	_, err := e.Rollback(t.Context(), k, runnerapi.RollbackTo{}, byTest)
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
	deploy(t, e, k, image("1"))
	_, err = e.Rollback(t.Context(), k, runnerapi.RollbackTo{}, byTest)
	assert.Equal(t, runnerapi.CodeConflict, code(err), "there is nothing before the first")
	deploy(t, e, k, image("2"))
	deploy(t, e, k, image("3"))
	_, err = e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(4))}, byTest)
	require.NoError(t, err)

	dry, err := e.Rollback(t.Context(), k, runnerapi.RollbackTo{Revision: 1}, runnerapi.WriteOptions{DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, "example.com/web:1", dry.Spec.Image)
	assert.Equal(t, "example.com/web:3", get(t, env, k, &v1alpha1.App{}).Spec.Image)

	refusing := byTest
	refusing.Admit = func(s runnerapi.AppSpec) error {
		assert.Nil(t, s.Replicas, "a rollback brings no number of pods")
		return runnerapi.PolicyDenied("", "not %s", s.Image)
	}
	_, err = e.Rollback(t.Context(), k, runnerapi.RollbackTo{Revision: 1}, refusing)
	assert.Equal(t, runnerapi.CodePolicyDenied, code(err))
	assert.ErrorContains(t, err, "not example.com/web:1")
	assert.Equal(t, "example.com/web:3", get(t, env, k, &v1alpha1.App{}).Spec.Image)

	once := byTest
	once.Command = "back-once"
	for range 2 {
		a, err := e.Rollback(t.Context(), k, runnerapi.RollbackTo{}, once)
		require.NoError(t, err)
		assert.Equal(t, "example.com/web:2", a.Spec.Image, "the one before, however often it is sent")
		assert.EqualValues(t, 4, *a.Spec.Replicas, "the number of pods stays")
		assert.EqualValues(t, 5, a.Generation)
	}
	a, err := e.Rollback(t.Context(), k, runnerapi.RollbackTo{Revision: 1}, byTest)
	require.NoError(t, err)
	assert.Equal(t, "example.com/web:1", a.Spec.Image)
	list := revisions(t, e, k)
	assert.Equal(t, []int64{6, 5, 3, 2, 1}, numbers(list))
	assert.Equal(t, []int64{1, 2}, []int64{list[0].Restores, list[1].Restores})
	eventually(t, "the deployment follows", func() bool {
		d := &appsv1.Deployment{}
		return exists(t, env, k, d) && d.Spec.Template.Spec.Containers[0].Image == "example.com/web:1" && *d.Spec.Replicas == 4
	})
	_, err = e.Rollback(t.Context(), k, runnerapi.RollbackTo{Revision: 4}, byTest)
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
	assert.ErrorContains(t, err, "1, 2, 3, 5, 6")
}

func TestRevisions_BoundedAndDeleted(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "bounded")
	for tag := range strings.SplitSeq("abcdef", "") {
		spec := image(tag)
		spec.RevisionHistoryLimit = new(int32(3))
		deploy(t, e, k, spec)
	}
	eventually(t, "the oldest are gone", func() bool { return slices.Equal([]int64{6, 5, 4}, numbers(revisions(t, e, k))) })
	foreign := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "foreign", Labels: get(t, env, k, &v1alpha1.App{}).Labels}, Revision: 9,
		Data: runtime.RawExtension{Raw: []byte(`{}`)},
	}
	require.NoError(t, env.Client.Create(t.Context(), foreign))
	require.NoError(t, e.Delete(t.Context(), k, byTest))
	left := &appsv1.ControllerRevisionList{}
	require.NoError(t, env.Client.List(t.Context(), left, client.InNamespace(k.Namespace)))
	require.Len(t, left.Items, 1)
	assert.Equal(t, "foreign", left.Items[0].Name)
}

func TestPaused_LeavesObjects(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "paused")
	deploy(t, e, k, image("1"))
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)
	a, err := e.Pause(t.Context(), k, byTest)
	require.NoError(t, err)
	settledIn(t, e, k, runnerapi.PhasePaused)
	assert.Equal(t, runnerapi.OperationSucceeded, outcome(t, e, "pause-app", a).State)

	changed := image("2")
	changed.Paused, changed.Replicas = new(true), new(int32(5))
	a = deploy(t, e, k, changed)
	d := get(t, env, k, &appsv1.Deployment{})
	d.Spec.Template.Spec.Containers[0].Image = "example.com/web:by-hand"
	require.NoError(t, env.Client.Update(t.Context(), d))
	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, k, &corev1.Service{})))
	eventually(t, "the status speaks of the change", func() bool {
		got, err := e.Get(t.Context(), k)
		return err == nil && got.Status.ObservedGeneration == a.Generation
	})
	settledIn(t, e, k, runnerapi.PhasePaused)
	d = get(t, env, k, &appsv1.Deployment{})
	assert.Equal(t, "example.com/web:by-hand", d.Spec.Template.Spec.Containers[0].Image)
	assert.EqualValues(t, 1, *d.Spec.Replicas)
	assert.False(t, exists(t, env, k, &corev1.Service{}))
	assert.Equal(t, runnerapi.OperationPending, outcome(t, e, "put-app", a).State)

	_, err = e.Resume(t.Context(), k, byTest)
	require.NoError(t, err)
	eventually(t, "all is rolled out", func() bool {
		d := get(t, env, k, &appsv1.Deployment{})
		return d.Spec.Template.Spec.Containers[0].Image == "example.com/web:2" && *d.Spec.Replicas == 5 && exists(t, env, k, &corev1.Service{})
	})
	assert.Equal(t, runnerapi.OperationSuperseded, outcome(t, e, "put-app", a).State)
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}

// refusePods makes what a ReplicaSet leaves behind whose pods the kubelet refuses.
func refusePods(t *testing.T, env *kubetest.Env, k runnerapi.Key, image string) {
	t.Helper()
	d := &appsv1.Deployment{}
	eventually(t, "the deployment of "+image, func() bool {
		return exists(t, env, k, d) && d.Spec.Template.Spec.Containers[0].Image == image
	})
	revision := map[string]string{"deployment.kubernetes.io/revision": image}
	d.Annotations["deployment.kubernetes.io/revision"] = image
	require.NoError(t, env.Client.Update(t.Context(), d))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1}
	require.NoError(t, env.Client.Status().Update(t.Context(), d))
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: k.Name + "-", Namespace: k.Namespace, Annotations: revision, Labels: d.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	require.NoError(t, env.Client.Create(t.Context(), rs))
	for i := range 5 {
		pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
		pod.Namespace, pod.Name, pod.Spec.NodeName = k.Namespace, fmt.Sprint(rs.Name, "-", i), "n1"
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
		require.NoError(t, env.Client.Create(t.Context(), pod))
		pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SysctlForbidden", Message: "forbidden sysctl"}
		require.NoError(t, env.Client.Status().Update(t.Context(), pod))
	}
}

func TestRollout_StopsRefusedPods(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	first := key(ns, "never-good")
	deploy(t, e, first, image("bad"))
	refusePods(t, env, first, image("bad").Image)
	eventually(t, "it has no pods any more", func() bool { return *get(t, env, first, &appsv1.Deployment{}).Spec.Replicas == 0 })
	a := settledIn(t, e, first, runnerapi.PhaseFailed)
	assert.Equal(t, runnerapi.CauseAdmissionRefused, a.Status.Diagnosis.Cause)
	assert.Contains(t, a.Status.Diagnosis.Message, "the agent stopped the rollout")
	deploy(t, e, first, image("good"))
	eventually(t, "another spec is rolled out", func() bool {
		d := get(t, env, first, &appsv1.Deployment{})
		return *d.Spec.Replicas == 1 && d.Spec.Template.Spec.Containers[0].Image == image("good").Image
	})

	k := key(ns, "was-good")
	deploy(t, e, k, image("good"))
	rollOut(t, env, k)
	settledIn(t, e, k, runnerapi.PhaseHealthy)
	deploy(t, e, k, image("bad"))
	refusePods(t, env, k, image("bad").Image)
	eventually(t, "it is what was healthy", func() bool {
		d := get(t, env, k, &appsv1.Deployment{})
		return *d.Spec.Replicas == 1 && d.Spec.Template.Spec.Containers[0].Image == image("good").Image
	})
	rollOut(t, env, k)
	a = settledIn(t, e, k, runnerapi.PhaseDegraded)
	assert.Equal(t, image("bad").Image, a.Spec.Image, "what was asked for stays")
	assert.Equal(t, runnerapi.CauseAdmissionRefused, a.Status.Diagnosis.Cause)
}
