package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sized returns the App's resources: what its spec asks for, or what right-sizing has put into the
// pod template.
func sized(a *v1alpha1.App) runnerapi.Resources {
	r := a.Spec.Resources
	s := a.Status.Sizing
	if s == nil || s.Applied == nil || s.Applied.By != v1alpha1.ByRollout || a.Spec.Sizing() != runnerapi.SizingApply {
		return r
	}
	r.Requests.CPU, r.Requests.Memory = Quantities(*s.Applied)
	return r
}

// Quantities returns requests as Kubernetes writes them.
func Quantities(s v1alpha1.AppliedSizing) (cpu, memory string) {
	return resource.NewMilliQuantity(s.CPU, resource.DecimalSI).String(), resource.NewQuantity(s.Memory, resource.BinarySI).String()
}

// Requested returns what the App's spec asks for, with the defaults.
func Requested(a *v1alpha1.App) v1alpha1.AppliedSizing {
	return RequestsOf(resources(a.Spec.Resources))
}

// RequestsOf returns the requests of a container.
func RequestsOf(r corev1.ResourceRequirements) v1alpha1.AppliedSizing {
	return v1alpha1.AppliedSizing{CPU: r.Requests.Cpu().MilliValue(), Memory: r.Requests.Memory().Value()}
}
