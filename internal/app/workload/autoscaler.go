package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

// autoscaler returns the HorizontalPodAutoscaler of an App that asks for one, or nil. It scales the
// workload and not the App, so the App's spec stays as it was written.
func autoscaler(a *v1alpha1.App) *autoscalingv2.HorizontalPodAutoscaler {
	spec := a.Spec.Autoscaling
	if spec == nil {
		return nil
	}
	cpu := spec.CPUPercent
	if cpu == 0 && spec.MemoryPercent == 0 {
		cpu = defaultCPUPercent
	}
	out := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: autoscalingv2.SchemeGroupVersion.String(), Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: ChildMeta(a),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: KindOf(Blank(a.Spec.Type)), Name: a.Name,
			},
			MinReplicas: new(spec.Min), MaxReplicas: spec.Max,
		},
	}
	for _, target := range []struct {
		name    corev1.ResourceName
		percent int32
	}{{corev1.ResourceCPU, cpu}, {corev1.ResourceMemory, spec.MemoryPercent}} {
		if target.percent == 0 {
			continue
		}
		out.Spec.Metrics = append(out.Spec.Metrics, autoscalingv2.MetricSpec{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: target.name, Target: autoscalingv2.MetricTarget{
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(target.percent),
			}},
		})
	}
	return out
}

// wanted returns the number of pods for a workload that now has the number has. The autoscaler's
// choice stays, within the bounds.
func wanted(a *v1alpha1.App, has *int32) int32 {
	bounds := a.Spec.Autoscaling
	if bounds == nil || a.Replicas() == 0 {
		return a.Replicas()
	}
	return min(max(ptr.Deref(has, bounds.Min), bounds.Min), bounds.Max)
}

// KeepScale keeps the number of pods that the autoscaler chose for the workload.
func KeepScale(a *v1alpha1.App, desired, have any) {
	switch d := desired.(type) {
	case *appsv1.Deployment:
		if h, ok := have.(*appsv1.Deployment); ok {
			d.Spec.Replicas = new(wanted(a, h.Spec.Replicas))
		}
	case *appsv1.StatefulSet:
		if h, ok := have.(*appsv1.StatefulSet); ok {
			d.Spec.Replicas = new(wanted(a, h.Spec.Replicas))
		}
	}
}
