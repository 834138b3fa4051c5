package controller

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	kubeevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// A rollout causes dozens of changes of pods, ReplicaSets and the workload within a second.
// Reconciling each one alone costs a write of the App's status. Together these writes delay the API
// server's work on the next deploy. So changes are gathered for a moment. They do not get a lower
// priority than new specs: otherwise, while many Apps are deployed, the outcome of the first would
// be reported late.
const gather = 100 * time.Millisecond

type (
	queue   = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue = handler.Funcs
)

// onChangedApp reconciles an App at once when its desired state changed, and reports one that is
// gone to ended.
func onChangedApp(ended func(*v1alpha1.App)) handler.EventHandler {
	gone := func(o client.Object) {
		if a, ok := o.(*v1alpha1.App); ok {
			ended(a)
		}
	}
	return enqueue{
		CreateFunc: func(_ context.Context, e kubeevent.CreateEvent, q queue) {
			add(q, client.ObjectKeyFromObject(e.Object), createOpts(e))
		},
		UpdateFunc: func(_ context.Context, e kubeevent.UpdateEvent, q queue) {
			key := client.ObjectKeyFromObject(e.ObjectNew)
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() { // deleted and created again unseen
				gone(e.ObjectOld)
			}
			switch {
			case askedAnew(e.ObjectOld, e.ObjectNew):
				add(q, key, priorityqueue.AddOpts{})
			case !onlyAnnounced(e.ObjectOld, e.ObjectNew):
				add(q, key, news())
			}
		},
		DeleteFunc: func(_ context.Context, e kubeevent.DeleteEvent, q queue) {
			gone(e.Object)
			add(q, client.ObjectKeyFromObject(e.Object), priorityqueue.AddOpts{})
		},
	}
}

// askedAnew reports whether more than the status changed.
func askedAnew(was, is client.Object) bool {
	return was.GetGeneration() != is.GetGeneration() || was.GetUID() != is.GetUID() ||
		!was.GetDeletionTimestamp().Equal(is.GetDeletionTimestamp()) ||
		!equality.Semantic.DeepEqual(was.GetAnnotations(), is.GetAnnotations()) ||
		!equality.Semantic.DeepEqual(was.GetLabels(), is.GetLabels()) ||
		!equality.Semantic.DeepEqual(was.GetFinalizers(), is.GetFinalizers())
}

// onlyAnnounced reports whether only the record of announcements to the control plane changed.
// Every state of every App is recorded once, and Reconcile does not read that record.
func onlyAnnounced(was, is client.Object) bool {
	before, ok := was.(*v1alpha1.App)
	after, ok2 := is.(*v1alpha1.App)
	if !ok || !ok2 || reflect.DeepEqual(before.Status.Announced, after.Status.Announced) {
		return false
	}
	old, now := before.Status, after.Status
	old.Announced, now.Announced = nil, nil
	return reflect.DeepEqual(old, now)
}

// onNewsOfApp reconciles the App that an object belongs to, by its label.
func onNewsOfApp() handler.EventHandler {
	return enqueue{
		CreateFunc: func(_ context.Context, e kubeevent.CreateEvent, q queue) {
			opts := news()
			if e.IsInInitialList {
				opts = createOpts(e)
			}
			addOwner(q, e.Object, opts)
		},
		UpdateFunc: func(_ context.Context, e kubeevent.UpdateEvent, q queue) {
			addOwner(q, e.ObjectNew, news())
			if e.ObjectOld.GetLabels()[objectmeta.App] != e.ObjectNew.GetLabels()[objectmeta.App] {
				addOwner(q, e.ObjectOld, news())
			}
		},
		DeleteFunc: func(_ context.Context, e kubeevent.DeleteEvent, q queue) { addOwner(q, e.Object, news()) },
	}
}

func news() priorityqueue.AddOpts {
	return priorityqueue.AddOpts{After: gather, Priority: new(0)}
}

// createOpts gives objects that existed at the start a lower priority than new events.
func createOpts(e kubeevent.CreateEvent) priorityqueue.AddOpts {
	if e.IsInInitialList {
		return priorityqueue.AddOpts{Priority: new(handler.LowPriority)}
	}
	return priorityqueue.AddOpts{}
}

func addOwner(q queue, o client.Object, opts priorityqueue.AddOpts) {
	if name := o.GetLabels()[objectmeta.App]; name != "" {
		add(q, types.NamespacedName{Namespace: o.GetNamespace(), Name: name}, opts)
	}
}

func add(q queue, key types.NamespacedName, opts priorityqueue.AddOpts) {
	request := reconcile.Request{NamespacedName: key}
	if pq, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		pq.AddWithOpts(opts, request)
		return
	}
	q.AddAfter(request, opts.After)
}
