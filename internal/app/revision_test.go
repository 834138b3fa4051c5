package app_test

import (
	"encoding/json"
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
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

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
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "told")
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
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "back")
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
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "bounded")
	for tag := range strings.SplitSeq("abcdef", "") {
		spec := image(tag)
		spec.RevisionHistoryLimit = new(int32(3))
		deploy(t, e, k, spec)
	}
	eventually(t, "the oldest are gone", func() bool { return slices.Equal([]int64{6, 5, 4}, numbers(revisions(t, e, k))) })
	foreign := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "foreign", Labels: get(t, env, k, &v1alpha1.App{}).Labels}, Revision: 9,
		Data: runtime.RawExtension{Raw: []byte(`{}`)},
	}
	require.NoError(t, env.Client.Create(t.Context(), foreign))
	require.NoError(t, e.Delete(t.Context(), k, byTest))
	left := &appsv1.ControllerRevisionList{}
	require.NoError(t, env.Client.List(t.Context(), left, client.InNamespace(ns)))
	require.Len(t, left.Items, 1)
	assert.Equal(t, "foreign", left.Items[0].Name)
}

func TestPaused_LeavesObjects(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "paused")
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
