package manifests

import (
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// goneWait is how long the deletion of a set waits for its objects to be gone with
// their pods. What takes longer goes on by itself, and the inventory names it.
const goneWait = 20 * time.Second

// podsTold bounds the pods that are read of one object.
const podsTold = 20

// makePods are the kinds that make pods.
var makePods = map[string]bool{
	"Deployment.apps": true, "StatefulSet.apps": true, "DaemonSet.apps": true, "ReplicaSet.apps": true,
	"ReplicationController": true, "Job.batch": true, "CronJob.batch": true,
}

// takeDown deletes what a set holds. What makes pods stays until these are gone.
func (r *run) takeDown(ctx context.Context) {
	for _, i := range r.left {
		if i.out.Action != runnerapi.ApplyPruned || i.live == nil {
			continue
		}
		how := metav1.DeletePropagationBackground
		if makePods[kindOf(i.out.ManifestRef)] {
			how = metav1.DeletePropagationForeground
		}
		if err := r.remove(ctx, i, how); err != nil {
			i.fail(i.located(problemOf(err, i.out.ManifestRef, "deleting it")))
		}
	}
}

// awaitGone looks at what was deleted until all of it is gone, the time is up, or ctx ends.
func (r *run) awaitGone(ctx context.Context) {
	end := time.Now().Add(goneWait)
	for next := firstPause; ; next = min(2*next, lastPause) {
		if !r.lookForGone(ctx) || time.Until(end) < next || !retry.Wait(ctx, next) {
			return
		}
	}
}

// lookForGone records for each deleted object what holds it, and returns whether any is left.
func (r *run) lookForGone(ctx context.Context) (left bool) {
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, i := range r.left {
		if i.out.Action != runnerapi.ApplyPruned || i.live == nil {
			continue
		}
		group.Go(func() error {
			uid := i.live.GetUID()
			if err := r.read(ctx, i); err != nil {
				i.out.State, i.out.Message = runnerapi.ObjectUnknown, asProblem(err).Detail
				return nil
			}
			if i.live == nil || i.live.GetUID() != uid {
				i.live, i.out.State, i.out.Message = nil, "", ""
				return nil
			}
			i.out.State, i.out.Message = runnerapi.ObjectInProgress, clip("waits for "+r.heldBy(ctx, i.live))
			i.live = identityOf(i.live)
			return nil
		})
	}
	_ = group.Wait() // none fails
	return slices.ContainsFunc(r.left, going)
}

// going reports whether an object was deleted and is still there.
func going(i *item) bool { return i.out.Action == runnerapi.ApplyPruned && i.out.State != "" }

// heldBy returns what keeps an object that was deleted from being gone.
func (r *run) heldBy(ctx context.Context, live *unstructured.Unstructured) string {
	others := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents
	})
	if len(others) > 0 {
		return "its finalizer to be removed: " + strings.Join(others, ", ")
	}
	var waits []string
	for _, pod := range r.podsOf(ctx, live) {
		// A node that was not asked for is taken for one that is there.
		waits = append(waits, diagnose.Remains(&pod, readyNode, time.Now()).Waits)
	}
	if len(waits) == 0 {
		return "what it made to go"
	}
	return strings.Join(waits, "; ")
}

var readyNode = &corev1.Node{Status: corev1.NodeStatus{
	Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
}}

// podsOf returns the pods that an object selects, or the pod that it is. Pods that cannot be read
// are left out: what holds the object is a help, and no answer hangs on it.
func (r *run) podsOf(ctx context.Context, live *unstructured.Unstructured) []corev1.Pod {
	if live.GetKind() == "Pod" {
		return typedPods([]unstructured.Unstructured{*live})
	}
	labels, _, _ := unstructured.NestedStringMap(live.Object, "spec", "selector", "matchLabels")
	if len(labels) == 0 {
		return nil
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	list, err := r.api.objects.Resource(pods).Namespace(live.GetNamespace()).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels}), Limit: podsTold,
	})
	if err != nil {
		return nil
	}
	return typedPods(list.Items)
}

func typedPods(items []unstructured.Unstructured) (pods []corev1.Pod) {
	for n := range items {
		var pod corev1.Pod
		if runtime.DefaultUnstructuredConverter.FromUnstructured(items[n].Object, &pod) == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}
