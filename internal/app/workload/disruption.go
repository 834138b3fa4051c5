package workload

import (
	"cmp"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const defaultCPUPercent = 80

// budget returns the PodDisruptionBudget of an App that asks for one, or nil. It does not protect a
// pod that is not ready, which must not block a drain.
func budget(a *v1alpha1.App) *policyv1.PodDisruptionBudget {
	spec := a.Spec.Disruption
	if spec == nil {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: ChildMeta(a),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: amount(spec.MinAvailable), MaxUnavailable: amount(spec.MaxUnavailable),
			Selector:                   &metav1.LabelSelector{MatchLabels: objectmeta.AppLabels(a.Name)},
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// amount parses a number or a percentage; it returns nil for an empty text.
func amount(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	return new(intstr.Parse(s))
}

func amountOr(s, fallback string) *intstr.IntOrString {
	s = cmp.Or(s, fallback)
	return amount(s)
}
