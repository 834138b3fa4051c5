package controller

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	kubeevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newQueue(t *testing.T) priorityqueue.PriorityQueue[reconcile.Request] {
	q, ok := newTurns(t.Name(), nil).(priorityqueue.PriorityQueue[reconcile.Request])
	require.True(t, ok)
	t.Cleanup(q.ShutDown)
	return q
}

// TestQueue_ShareByNamespace: Apps of a namespace whose reconciliation takes long leave a worker to
// those of others, and lose no turn.
func TestQueue_ShareByNamespace(t *testing.T) {
	q := newQueue(t)
	request := func(namespace, name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	var want []string
	for n := range 3 * workers {
		name := strconv.Itoa(n)
		want = append(want, name)
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, request("many", name))
	}
	var begun []reconcile.Request
	for range workersOfNamespace {
		item, _, _ := q.GetWithPriority()
		begun = append(begun, item)
	}
	q.Add(request("one", "web"))
	item, _ := q.Get()
	assert.Equal(t, request("one", "web"), item, "it does not wait for the others")
	q.Done(item)

	q.Add(request("many", "urgent"))
	q.Done(begun[0])
	urgent, _, _ := q.GetWithPriority()
	got := []string{begun[0].Name}
	for begun = append(begun[1:], urgent); len(begun) > 0; begun = begun[1:] {
		got = append(got, begun[0].Name)
		q.Done(begun[0])
		if len(got)+len(begun) <= len(want)+1 {
			next, _, _ := q.GetWithPriority()
			begun = append(begun, next)
		}
	}
	assert.ElementsMatch(t, append(want, "urgent"), got)
}

func appAt(generation int64, name string) *v1alpha1.App {
	return &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Generation: generation, ResourceVersion: strconv.FormatInt(generation, 10)}}
}

func podOf(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-x", Labels: map[string]string{objectmeta.App: name}}}
}

func TestEnqueue_GathersEvents(t *testing.T) {
	q := newQueue(t)
	for range 20 {
		onNewsOfApp().Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: podOf("rolling"), ObjectNew: podOf("rolling")}, q)
	}
	onChangedApp(nil).Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: appAt(1, "changed"), ObjectNew: appAt(2, "changed")}, q)
	first, priority, _ := q.GetWithPriority()
	q.Done(first)
	second, ofNews, _ := q.GetWithPriority()
	q.Done(second)
	assert.Equal(t, "changed", first.Name)
	assert.Equal(t, "rolling", second.Name)
	assert.Equal(t, priority, ofNews, "news must not wait for as long as there are changes")
	assert.Zero(t, q.Len(), "twenty news are one")
}

func TestEnqueue_StatusIsNoNewSpec(t *testing.T) {
	was := appAt(1, "a")
	status := was.DeepCopy()
	status.ResourceVersion, status.Status.ReadyReplicas = "2", 1
	assert.False(t, askedAnew(was, status))
	for what, change := range map[string]func(*v1alpha1.App){
		"spec":        func(a *v1alpha1.App) { a.Generation++ },
		"recreated":   func(a *v1alpha1.App) { a.UID = "2" },
		"annotations": func(a *v1alpha1.App) { a.Annotations = map[string]string{objectmeta.RequestID: "1"} },
		"labels":      func(a *v1alpha1.App) { a.Labels = map[string]string{"a": "b"} },
		"finalizers":  func(a *v1alpha1.App) { a.Finalizers = []string{"example.com/hold"} },
		"deleted":     func(a *v1alpha1.App) { now := metav1.Now(); a.DeletionTimestamp = &now },
	} {
		is := was.DeepCopy()
		change(is)
		assert.True(t, askedAnew(was, is), what)
	}
}

func TestEnqueue_ReportsEnds(t *testing.T) {
	var gone []types.UID
	h, q := onChangedApp(func(a *v1alpha1.App) { gone = append(gone, a.UID) }), newQueue(t)
	first, second := appAt(1, "a"), appAt(1, "a")
	first.UID, second.UID = "1", "2"
	h.Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: first, ObjectNew: first}, q)
	assert.Empty(t, gone)
	h.Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: first, ObjectNew: second}, q)
	h.Delete(context.Background(), kubeevent.DeleteEvent{Object: second}, q)
	assert.Equal(t, []types.UID{"1", "2"}, gone)
}

func TestEnqueue_IgnoresAnnouncements(t *testing.T) {
	was := appAt(1, "a")
	was.Status.LastTransition = new(time.Now())
	announced := was.DeepCopy()
	announced.ResourceVersion, announced.Status.Announced = "2", &v1alpha1.Announced{Phase: runnerapi.PhaseHealthy}
	also := announced.DeepCopy()
	also.Status.ReadyReplicas = 1
	q := newQueue(t)
	onChangedApp(nil).Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: was, ObjectNew: announced}, q)
	assert.True(t, onlyAnnounced(was, announced))
	assert.False(t, onlyAnnounced(was, also), "more changed with it")
	assert.False(t, onlyAnnounced(was, was.DeepCopy()), "a status that was put back by the agent is looked at")
	onChangedApp(nil).Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: appAt(1, "b"), ObjectNew: also}, q)
	got, _, _ := q.GetWithPriority()
	q.Done(got)
	assert.Equal(t, "a", got.Name)
	assert.Zero(t, q.Len())
}

func TestEnqueue_LostLabel(t *testing.T) {
	q := newQueue(t)
	unmarked := podOf("a")
	unmarked.Labels = nil
	onNewsOfApp().Update(context.Background(), kubeevent.UpdateEvent{ObjectOld: podOf("a"), ObjectNew: unmarked}, q)
	got, _, _ := q.GetWithPriority()
	assert.Equal(t, "a", got.Name)
}
