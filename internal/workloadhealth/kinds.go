package workloadhealth

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// typed returns the object as Go has it; nil for a kind that neither runs pods nor scales them.
func typed(u *unstructured.Unstructured) (client.Object, error) {
	var o client.Object
	switch gk := u.GroupVersionKind().GroupKind().String(); gk {
	case "Deployment.apps":
		o = &appsv1.Deployment{}
	case "StatefulSet.apps":
		o = &appsv1.StatefulSet{}
	case "DaemonSet.apps":
		o = &appsv1.DaemonSet{}
	case "ReplicaSet.apps":
		o = &appsv1.ReplicaSet{}
	case "Job.batch":
		o = &batchv1.Job{}
	case "CronJob.batch":
		o = &batchv1.CronJob{}
	case "HorizontalPodAutoscaler.autoscaling":
		o = &autoscalingv2.HorizontalPodAutoscaler{}
	case "Pod":
		o = &corev1.Pod{}
	default:
		return nil, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if h, is := o.(*autoscalingv2.HorizontalPodAutoscaler); is && u.GroupVersionKind().Version == "v1" {
		// Version 1 has no field for them.
		_ = json.Unmarshal([]byte(h.Annotations["autoscaling.alpha.kubernetes.io/conditions"]), &h.Status.Conditions)
	}
	return o, nil
}

// seen reports whether a workload's status speaks of its newest spec.
func seen(w client.Object) bool {
	switch w := w.(type) {
	case *appsv1.Deployment:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.StatefulSet:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.DaemonSet:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.ReplicaSet:
		return w.Status.ObservedGeneration >= w.Generation
	}
	return true
}

func typeOf(w client.Object) runnerapi.AppType {
	switch w := w.(type) {
	case *appsv1.StatefulSet:
		return runnerapi.TypeStatefulSet
	case *appsv1.DaemonSet:
		return runnerapi.TypeDaemonSet
	case *batchv1.Job:
		return runnerapi.TypeJob
	case *batchv1.CronJob:
		return runnerapi.TypeCronJob
	case *corev1.Pod:
		if w.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			return runnerapi.TypeJob
		}
	}
	return runnerapi.TypeDeployment
}
