package workloadhealth

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// podsTold bounds the pods that are named of one object that is being deleted.
const podsTold = 20

// makePods are the kinds that make pods.
var makePods = []string{
	"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "ReplicaSet.apps", "ReplicationController", "Job.batch", "CronJob.batch",
}

// Propagation returns how to delete an object of a kind, which is KIND or KIND.GROUP: an object
// that makes pods stays until they are gone.
func Propagation(kind string) metav1.DeletionPropagation {
	if slices.Contains(makePods, kind) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// Going returns how an object is that was just read; false for one that is not being deleted.
func Going(ctx context.Context, api dynamic.Interface, live *unstructured.Unstructured) (Report, bool) {
	if live == nil || live.GetDeletionTimestamp() == nil {
		return Report{}, false
	}
	return Report{State: runnerapi.ObjectInProgress, Message: "waits for " + heldBy(ctx, api, live)}, true
}

// heldBy returns what keeps an object that was deleted from being gone.
func heldBy(ctx context.Context, api dynamic.Interface, live *unstructured.Unstructured) string {
	others := slices.DeleteFunc(live.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents
	})
	if live.GetKind() == "Namespace" && live.GroupVersionKind().Group == "" {
		if holders := inNamespace(live); holders != "" {
			return holders
		}
	}
	if slices.Contains(others, claimInUse) {
		if pods := users(ctx, api, live); len(pods) > 0 {
			return "pods that use it: " + strings.Join(pods, ", ")
		}
	}
	if len(others) > 0 && live.GetKind() != "Pod" {
		return "its finalizer to be removed: " + strings.Join(others, ", ")
	}
	var waits []string
	for _, pod := range remaining(ctx, api, live) {
		// A node that was not asked for is taken for one that is there.
		waits = append(waits, diagnose.Remains(&pod, readyNode, time.Now()).Waits)
	}
	if len(waits) == 0 {
		return "what it made to go"
	}
	return strings.Join(waits, "; ")
}

// claimInUse is the finalizer of a PersistentVolumeClaim that a pod may use:
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection
const claimInUse = "kubernetes.io/pvc-protection"

// users returns the names of the pods that use a PersistentVolumeClaim.
func users(ctx context.Context, api dynamic.Interface, claim *unstructured.Unstructured) (names []string) {
	list, err := api.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(claim.GetNamespace()).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	for _, pod := range typedPods(list.Items) {
		uses := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.GetName()
		})
		if uses && len(names) < podsTold {
			names = append(names, pod.Name)
		}
	}
	return names
}

// inNamespace returns what a Namespace's own status says is left in it.
func inNamespace(live *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	var left []string
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch condition["type"] {
		case string(corev1.NamespaceContentRemaining), string(corev1.NamespaceFinalizersRemaining):
			if message, _ := condition["message"].(string); condition["status"] == "True" && message != "" {
				left = append(left, message)
			}
		}
	}
	return strings.Join(left, "; ")
}

var readyNode = &corev1.Node{Status: corev1.NodeStatus{
	Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
}}

// remaining returns the pods that an object selects, or the pod that it is. Pods that cannot be
// read are left out: what holds the object is a help, and no answer hangs on it.
func remaining(ctx context.Context, api dynamic.Interface, live *unstructured.Unstructured) []corev1.Pod {
	if live.GetKind() == "Pod" {
		return typedPods([]unstructured.Unstructured{*live})
	}
	labels, _, _ := unstructured.NestedStringMap(live.Object, "spec", "selector", "matchLabels")
	if len(labels) == 0 {
		return nil
	}
	list, err := api.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(live.GetNamespace()).List(ctx, metav1.ListOptions{
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
