package workload

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MayOwn reports whether the owner of a pod can belong to the App.
func MayOwn(a *v1alpha1.App, owner *metav1.OwnerReference) bool {
	switch a.Spec.Type {
	case runnerapi.TypeStatefulSet, runnerapi.TypeDaemonSet, runnerapi.TypeJob:
		return owner.Kind == string(a.Spec.Type) && owner.Name == a.Name
	case runnerapi.TypeCronJob, runnerapi.TypePipeline:
		return owner.Kind == "Job" && strings.HasPrefix(owner.Name, a.Name+"-")
	}
	return owner.Kind == "ReplicaSet" && strings.HasPrefix(owner.Name, a.Name+"-")
}

// RevisionOf returns the revision of a StatefulSet or DaemonSet from which a pod was made.
func RevisionOf(p *corev1.Pod) string { return p.Labels[appsv1.ControllerRevisionHashLabelKey] }

// PodReady reports whether a pod is ready.
func PodReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ReadyPods returns the number of pods to which a Service can send requests. The pods report that
// before their controller has counted them.
func ReadyPods(pods []*corev1.Pod) (n int32) {
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && PodReady(pod) {
			n++
		}
	}
	return n
}
