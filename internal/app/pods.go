package app

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// podsOf returns the pods of an App, including those of its older specs.
func (e *Engine) podsOf(ctx context.Context, a *App) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := e.cached.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(managed.AppLabels(a.Name))); err != nil {
		return nil, fmt.Errorf("list the pods of App %s: %w", a.key(), err)
	}
	var pods []*corev1.Pod
	for i := range list.Items { // pods that a user labelled by hand are not the App's
		if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && a.mayOwn(owner) {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods, nil
}

// mayOwn reports whether the owner of a pod can belong to the App.
func (a *App) mayOwn(owner *metav1.OwnerReference) bool {
	switch a.Spec.Type {
	case runnerapi.TypeStatefulSet, runnerapi.TypeDaemonSet, runnerapi.TypeJob:
		return owner.Kind == string(a.Spec.Type) && owner.Name == a.Name
	case runnerapi.TypeCronJob, runnerapi.TypePipeline:
		return owner.Kind == "Job" && strings.HasPrefix(owner.Name, a.Name+"-")
	}
	return owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.Name, a.Name+"-")
}

// revisionOf returns the revision of a StatefulSet or DaemonSet from which a pod was made.
func revisionOf(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// readyPods returns the number of pods to which a Service can send requests. The pods report that
// before their controller has counted them.
func readyPods(pods []*corev1.Pod) (n int32) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && podReady(pod) {
			n++
		}
	}
	return n
}
