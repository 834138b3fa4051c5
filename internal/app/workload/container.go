package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func env(vars []runnerapi.EnvVar) []corev1.EnvVar {
	out := make([]corev1.EnvVar, 0, len(vars))
	for _, v := range vars {
		e := corev1.EnvVar{Name: v.Name, Value: v.Value}
		switch {
		case v.Secret != nil:
			e.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.Name}, Key: v.Secret.Key,
			}}
		case v.ConfigMap != nil:
			e.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: v.ConfigMap.Name}, Key: v.ConfigMap.Key,
			}}
		}
		out = append(out, e)
	}
	return out
}

func envFrom(sources []runnerapi.EnvSource) []corev1.EnvFromSource {
	out := make([]corev1.EnvFromSource, 0, len(sources))
	for _, s := range sources {
		e := corev1.EnvFromSource{Prefix: s.Prefix}
		if s.Secret != "" {
			e.SecretRef = &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: s.Secret}}
		} else {
			e.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: s.ConfigMap}}
		}
		out = append(out, e)
	}
	return out
}

// resources returns the App's, with a request for what it does not name: a pod without one is the
// first to be starved or evicted.
func resources(r runnerapi.Resources) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	set := func(name corev1.ResourceName, request, limit, fallback string) {
		want, bounded := Quantity(limit)
		if bounded {
			out.Limits[name] = want
		}
		ask, asked := Quantity(request)
		if !asked {
			ask = resource.MustParse(fallback)
			if bounded && want.Cmp(ask) < 0 {
				ask = want
			}
		}
		out.Requests[name] = ask
	}
	set(corev1.ResourceCPU, r.Requests.CPU, r.Limits.CPU, defaultCPURequest)
	set(corev1.ResourceMemory, r.Requests.Memory, r.Limits.Memory, defaultMemoryRequest)
	for name, n := range r.Devices { // Kubernetes wants the request to be the limit
		of := *resource.NewQuantity(int64(n), resource.DecimalSI)
		out.Requests[corev1.ResourceName(name)], out.Limits[corev1.ResourceName(name)] = of, of
	}
	return out
}

// Quantity reads what Validate has let through.
func Quantity(s string) (resource.Quantity, bool) {
	q, err := resource.ParseQuantity(s)
	return q, err == nil && s != ""
}

// lifecycle has a pod behind an ingress go on for a moment before its App gets SIGTERM: load
// balancers and the gateway still lead visitors to it until they hear of its end.
func lifecycle(a *v1alpha1.App) *corev1.Lifecycle {
	if a.Spec.Ingress == nil || a.Spec.Type.Runs() || grace(a) <= servingSeconds {
		return nil
	}
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: servingSeconds}}}
}

// grace returns the seconds from the decision to end a pod to SIGKILL.
func grace(a *v1alpha1.App) int64 { return ptr.Deref(a.Spec.GraceSeconds, gracePeriod) }

// probe writes Kubernetes' defaults out, so that drift in them is seen too.
func probe(p *runnerapi.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	out := &corev1.Probe{
		InitialDelaySeconds: p.InitialDelaySeconds, SuccessThreshold: 1,
		PeriodSeconds: cmp.Or(p.PeriodSeconds, 10), TimeoutSeconds: cmp.Or(p.TimeoutSeconds, 1),
		FailureThreshold: cmp.Or(p.FailureThreshold, 3),
	}
	switch {
	case p.HTTP != nil:
		path := cmp.Or(p.HTTP.Path, "/")
		out.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(p.HTTP.Port), Scheme: corev1.URISchemeHTTP}
	case p.TCP != nil:
		out.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(p.TCP.Port)}
	default:
		out.Exec = &corev1.ExecAction{Command: p.Exec}
	}
	return out
}
