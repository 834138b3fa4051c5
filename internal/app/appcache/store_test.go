package appcache

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

var webKey = runnerapi.Key{Namespace: "shop", Name: "web"}

func cluster(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme, err := NewScheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.App{}).WithObjects(objects...)
}

func newStore(cached, live client.Client) *Store {
	return New(cached, live, objectmeta.Scope{}, zerolog.Nop(), func() time.Time { return time.Unix(1_700_000_000, 0) })
}

func web() *v1alpha1.App {
	return &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "app-1"}}
}

var codeOf = problemtest.Code

func TestGet_AsksServerWhenNotCached(t *testing.T) {
	s := newStore(cluster(t).Build(), cluster(t, web()).Build())
	a, err := s.Get(t.Context(), webKey)
	require.NoError(t, err)
	assert.Equal(t, webKey, a.Key())
	_, err = s.Get(t.Context(), runnerapi.Key{Namespace: "shop", Name: "api"})
	assert.Equal(t, problem.NotFound, codeOf(err))
	assert.ErrorContains(t, err, "there is no App shop/api")
}

func TestAdmit_RefusesUnmanaged(t *testing.T) {
	managed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: objectmeta.Labels()}}
	s := newStore(cluster(t).Build(), cluster(t, managed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}).Build())
	err := s.Admit(t.Context(), "shop")
	assert.Equal(t, problem.Unavailable, codeOf(err), "the caches are not filled")
	s.SetReady(true)
	assert.NoError(t, s.Admit(t.Context(), "shop"), "it was handed over a moment ago")
	s.Scope.Only = []string{"shop-2"}
	assert.Error(t, s.Admit(t.Context(), "shop"), "the agent is limited to others, though this one has the label")
	for _, namespace := range []string{"other", "absent"} {
		assert.Error(t, s.Admit(t.Context(), namespace), namespace)
		ok, err := s.Manages(t.Context(), namespace)
		assert.NoError(t, err)
		assert.False(t, ok, namespace)
	}
}

func TestPods_OnlyOwned(t *testing.T) {
	a := web()
	a.Spec.Type = runnerapi.TypeStatefulSet
	pod := func(name, kind, owner string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: objectmeta.AppLabels("web")}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
		}
		return p
	}
	c := cluster(t, pod("own", "StatefulSet", "web"), pod("by-hand", "", ""), pod("of-another", "StatefulSet", "api")).Build()
	pods, err := newStore(c, c).Pods(t.Context(), a)
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, "own", pods[0].Name)
}

func TestDeleteOwn_SparesForeign(t *testing.T) {
	a := web()
	own := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own", UID: "1"}}
	own.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(a, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))}
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "foreign", UID: "2"}}
	c := cluster(t, own, foreign).Build()
	s := newStore(c, c)
	for range 2 { // the second time it is gone
		require.NoError(t, s.DeleteOwn(t.Context(), a, own))
	}
	require.NoError(t, s.DeleteOwn(t.Context(), a, foreign))
	assert.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(own), own)))
	assert.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
}

func TestPatchStatus_IgnoresGone(t *testing.T) {
	looked := web()
	looked.Status.Phase = runnerapi.PhaseHealthy
	c := cluster(t, looked).Build()
	s := newStore(c, c)
	require.NoError(t, s.PatchStatus(t.Context(), webKey, "app-1", map[string]any{"selector": "a=b"}))
	a, err := s.GetLive(t.Context(), webKey)
	require.NoError(t, err)
	assert.Equal(t, "a=b", a.Status.Selector)
	assert.NoError(t, s.PatchStatus(t.Context(), runnerapi.Key{Namespace: "shop", Name: "gone"}, "app-1", nil))
}

func TestRecord_BoundsMessage(t *testing.T) {
	c := cluster(t).Build()
	newStore(c, c).Record(t.Context(), web(), "DriftCorrected", strings.Repeat("x", 2*maxEventMessage))
	var list corev1.EventList
	require.NoError(t, c.List(t.Context(), &list))
	require.Len(t, list.Items, 1)
	ev := list.Items[0]
	assert.Len(t, ev.Message, maxEventMessage)
	assert.Equal(t, "web", ev.InvolvedObject.Name)
	assert.Equal(t, objectmeta.AppLabels("web"), ev.Labels)
}

func TestSubscribe_WakesOnce(t *testing.T) {
	s := newStore(nil, nil)
	news, cancel := s.Subscribe(webKey)
	other, cancelOther := s.Subscribe(runnerapi.Key{Namespace: "shop", Name: "api"})
	defer cancelOther()
	s.Notify(webKey)
	s.Notify(webKey)
	assert.Len(t, news, 1, "a slow subscriber is woken once")
	assert.Empty(t, other)
	<-news
	cancel()
	s.Notify(webKey)
	assert.Empty(t, news)
	assert.NotContains(t, s.subs, webKey)
}

func TestResync_EndsWithContext(t *testing.T) {
	s := newStore(nil, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, s.Resync(ended, webKey), "nobody reads")
	got := make(chan runnerapi.Key, 1)
	go func() { got <- (<-s.Resynced()).Object.Key() }()
	assert.True(t, s.Resync(t.Context(), webKey))
	assert.Equal(t, webKey, <-got)
}

func TestCache_KeepsNoSecrets(t *testing.T) {
	container := corev1.Container{
		Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}, Args: []string{"--key=hunter2"},
		Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{}}},
		Spec: corev1.PodSpec{
			NodeName: "n", Containers: []corev1.Container{container}, InitContainers: []corev1.Container{container},
			Volumes: []corev1.Volume{{Name: "tmp"}, {Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}},
		},
	}
	template := corev1.PodTemplateSpec{Spec: pod.Spec}
	replicas := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b", objectmeta.DeploymentRevision: "3"}}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Template: template}}
	job := &batchv1.Job{Spec: batchv1.JobSpec{BackoffLimit: new(int32(3)), Template: template}}
	noted := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "a": "b"}}}
	for _, strip := range []func(any) (any, error){stripPod, stripReplicaSet, stripJob, strip} {
		for _, o := range []any{pod, replicas, job, noted} {
			_, err := strip(o)
			require.NoError(t, err)
		}
	}
	slim := corev1.Container{Name: "web", Image: "web:1", Ports: container.Ports[1:]}
	assert.Equal(t, []corev1.Container{slim}, pod.Spec.Containers)
	assert.Equal(t, []corev1.Container{slim}, pod.Spec.InitContainers)
	assert.Equal(t, "n", pod.Spec.NodeName)
	assert.Len(t, pod.Spec.Volumes, 1)
	assert.Empty(t, pod.Annotations)
	assert.Empty(t, pod.ManagedFields)
	assert.Equal(t, appsv1.ReplicaSetSpec{Replicas: new(int32(3))}, replicas.Spec)
	assert.Equal(t, map[string]string{objectmeta.DeploymentRevision: "3"}, replicas.Annotations)
	assert.Equal(t, batchv1.JobSpec{BackoffLimit: new(int32(3))}, job.Spec)
	assert.Equal(t, map[string]string{"a": "b"}, noted.Annotations)
}

// sized is an App whose spec has about so many bytes.
func sized(namespace, name string, bytes int) *v1alpha1.App {
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Generation: 1}}
	for n := range bytes / 1024 {
		a.Spec.Env = append(a.Spec.Env, runnerapi.EnvVar{Name: fmt.Sprintf("V%04d", n), Value: strings.Repeat("x", 1000)})
	}
	return a
}

func TestAdmitSize_BoundsAppsOfNamespace(t *testing.T) {
	const large = 9 << 10
	all := []client.Object{sized("other", "web", large)}
	for n := range 8 {
		all = append(all, sized("shop", fmt.Sprintf("web-%d", n), large))
	}
	s := newStore(cluster(t, all...).Build(), nil)
	assert.EqualValues(t, 8<<20, s.budget.namespace)
	s.budget.namespace = 85 << 10
	admit := func(namespace, name string, bytes int) error {
		return s.AdmitSize(t.Context(), runnerapi.Key{Namespace: namespace, Name: name}, sized(namespace, name, bytes).Spec)
	}
	require.NoError(t, admit("shop", "web-8", large))
	require.NoError(t, s.Cached.Create(t.Context(), sized("shop", "web-8", large)))
	for _, name := range []string{"web-9", "web-0"} { // a new one, and one that grows
		err := admit("shop", name, 2*large)
		assert.Equal(t, problem.TooLarge, codeOf(err))
		assert.ErrorContains(t, err, "the Apps of namespace shop would have")
		assert.ErrorContains(t, err, "85 KiB are the most")
	}
	require.NoError(t, admit("shop", "web-0", large/2), "one that shrinks")
	require.NoError(t, admit("other", "api", large), "another namespace has its own budget")

	s.budget.total = 95 << 10
	assert.ErrorContains(t, admit("other", "api", large), "with its memory, the agent takes 95 KiB")
	require.NoError(t, s.Cached.Delete(t.Context(), sized("shop", "web-1", 0)))
	assert.ErrorContains(t, admit("other", "api", large), "a namespace gets at most twice as much as is free")
	require.NoError(t, admit("new", "web", large/2), "a namespace that has less finds room")
	require.NoError(t, s.Cached.Delete(t.Context(), sized("shop", "web-2", 0)))
	require.NoError(t, admit("other", "api", large), "room that is free again")
	changed := &v1alpha1.App{}
	require.NoError(t, s.Cached.Get(t.Context(), client.ObjectKey{Namespace: "other", Name: "web"}, changed))
	changed.Generation, changed.Spec = 2, sized("", "", 2*large).Spec
	require.NoError(t, s.Cached.Update(t.Context(), changed))
	require.Error(t, admit("other", "api", large), "an App is measured again when it has changed")
}

// TestCache_KeepsLargeAppTwice: of an App, its Deployment, six ReplicaSets and two pods, only the
// first two stay whole.
func TestCache_KeepsLargeAppTwice(t *testing.T) {
	const large = 900 << 10
	template := func() corev1.PodTemplateSpec {
		c := corev1.Container{Name: "web"}
		for _, v := range sized("shop", "web", large).Spec.Env {
			c.Env = append(c.Env, corev1.EnvVar{Name: v.Name, Value: v.Value})
		}
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	}
	notes := func() map[string]string { return map[string]string{"a": strings.Repeat("x", 200<<10)} }
	var before, after runtime.MemStats
	runtime.GC() // twice: the first empties the pools of other tests
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := []any{sized("shop", "web", large), &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template()}}}
	for range 6 {
		rs, err := stripReplicaSet(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: notes()}, Spec: appsv1.ReplicaSetSpec{Template: template()}})
		require.NoError(t, err)
		kept = append(kept, rs)
	}
	for range 2 {
		pod, err := stripPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: notes()}, Spec: template().Spec})
		require.NoError(t, err)
		kept = append(kept, pod)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	size := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d KiB stay of an App of %d KiB", size>>10, large>>10)
	assert.Less(t, size, int64(large)*5/2)
	runtime.KeepAlive(kept)
}

func TestCache_CoversKindsOfApps(t *testing.T) {
	scheme, err := NewScheme()
	require.NoError(t, err)
	opts, mapper := CacheOptions([]string{"shop"}), NewMapper()
	assert.Contains(t, opts.DefaultNamespaces, "shop")
	assert.Nil(t, CacheOptions(nil).DefaultNamespaces, "all of them")
	for o := range opts.ByObject {
		kinds, _, err := scheme.ObjectKinds(o)
		require.NoError(t, err)
		_, err = mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
		assert.NoError(t, err, kinds[0].Kind)
	}
}

func TestOptional_NotesAbsentKind(t *testing.T) {
	routes := schema.GroupResource{Group: gatewayAPI, Resource: "httproutes"}
	var answer error
	live := cluster(t).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return answer },
	}).Build()
	changes := 0
	o := NewOptional(HTTPRouteKind, nil, Sources{Live: live}, func() { changes++ }, zerolog.Nop())
	assert.False(t, o.Known())
	for _, c := range []struct {
		err            error
		absent, denied bool
	}{
		{apierrors.NewServiceUnavailable("later"), false, false},
		{apierrors.NewNotFound(routes, ""), true, false},
		{apierrors.NewForbidden(routes, "", nil), true, true},
		{apierrors.NewNotFound(routes, ""), true, false},
	} {
		answer = c.err
		err := o.probe(t.Context())
		assert.Equal(t, c.absent, isAbsent(err))
		if c.absent {
			o.lacks(err)
		}
		assert.Equal(t, c.denied, o.denied)
	}
	assert.True(t, o.Known())
	assert.Equal(t, 1, changes, "that there are none is news once")
	all, err := o.List(t.Context())
	assert.NoError(t, err)
	assert.Empty(t, all)
}
