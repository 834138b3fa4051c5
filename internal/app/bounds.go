package app

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const defaultCPUPercent = 80

// autoscaler returns the HorizontalPodAutoscaler of an App that asks for one, or nil. It scales the
// workload and not the App, so the App's spec stays as it was written.
func autoscaler(a *App) *autoscalingv2.HorizontalPodAutoscaler {
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
		ObjectMeta: childMeta(a),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: workload(a).GetObjectKind().GroupVersionKind().Kind, Name: a.Name,
			},
			MinReplicas: ptr.To(spec.Min), MaxReplicas: spec.Max,
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
				Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(target.percent),
			}},
		})
	}
	return out
}

// budget returns the PodDisruptionBudget of an App that asks for one, or nil. It does not protect a
// pod that is not ready, which must not block a drain.
func budget(a *App) *policyv1.PodDisruptionBudget {
	spec := a.Spec.Disruption
	if spec == nil {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: childMeta(a),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: amount(spec.MinAvailable), MaxUnavailable: amount(spec.MaxUnavailable),
			Selector:                   &metav1.LabelSelector{MatchLabels: managed.AppLabels(a.Name)},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// amount parses a number or a percentage; it returns nil for an empty text.
func amount(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	return ptr.To(intstr.Parse(s))
}

func amountOr(s, fallback string) *intstr.IntOrString {
	if s == "" {
		s = fallback
	}
	return amount(s)
}

// replicas returns the number of pods in the spec.
func (a *App) replicas() int32 { return ptr.Deref(a.Spec.Replicas, defaultReplicas) }

// wanted returns the number of pods for a workload that now has the number has. The autoscaler's
// choice stays, within the bounds.
func (a *App) wanted(has *int32) int32 {
	bounds := a.Spec.Autoscaling
	if bounds == nil || a.replicas() == 0 {
		return a.replicas()
	}
	return min(max(ptr.Deref(has, bounds.Min), bounds.Min), bounds.Max)
}

// keepScale keeps the number of pods that the autoscaler chose for the workload.
func keepScale(a *App, desired, have any) {
	switch d := desired.(type) {
	case *appsv1.Deployment:
		if h, ok := have.(*appsv1.Deployment); ok {
			d.Spec.Replicas = ptr.To(a.wanted(h.Spec.Replicas))
		}
	case *appsv1.StatefulSet:
		if h, ok := have.(*appsv1.StatefulSet); ok {
			d.Spec.Replicas = ptr.To(a.wanted(h.Spec.Replicas))
		}
	}
}

// scaled reports whether the autoscaler controls the number of pods.
func (a *App) scaled() bool {
	return a.Spec.Autoscaling != nil && a.Spec.Type != runnerapi.TypeDaemonSet
}
