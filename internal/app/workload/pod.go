package workload

import (
	"cmp"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func podTemplate(a *v1alpha1.App) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: objectmeta.AppLabels(a.Name)},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{containerOf(a)},
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(grace(a)),
			SecurityContext:               podSecurity(a.Spec.Security),
			TopologySpreadConstraints:     spread(a),
			NodeSelector:                  a.Spec.NodeSelector,
			Tolerations:                   tolerations(a.Spec.Tolerations),
			PriorityClassName:             a.Spec.PriorityClass,
			Volumes:                       volumes(a),
			InitContainers:                initContainers(a),
		},
	}
	maps.Copy(t.Labels, a.Spec.PodLabels)
	maps.Copy(t.Labels, AdoptionOf(a).Selector)
	maps.Copy(t.Labels, objectmeta.AppLabels(a.Name)) // a spec cannot override these
	if len(a.Spec.PodAnnotations) > 0 {
		t.Annotations = maps.Clone(a.Spec.PodAnnotations)
	}
	setMetrics(&t, a.Spec.Metrics)
	for _, mark := range []string{objectmeta.RestartedAt, objectmeta.Contents} {
		if value := a.Annotations[mark]; value != "" {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, mark, value)
		}
	}
	if sa := a.Spec.ServiceAccount; sa != nil {
		t.Spec.ServiceAccountName, t.Spec.AutomountServiceAccountToken = sa.Name, new(sa.Token)
	}
	if a.Spec.Type.Runs() {
		t.Spec.RestartPolicy = corev1.RestartPolicyNever // a failed pod stays for the diagnosis
	}
	for _, name := range a.Spec.ImagePullSecrets {
		t.Spec.ImagePullSecrets = append(t.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return t
}

func tolerations(all []runnerapi.Toleration) (out []corev1.Toleration) {
	for _, t := range all {
		out = append(out, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOperator(t.Operator), Value: t.Value, Effect: corev1.TaintEffect(t.Effect), TolerationSeconds: t.Seconds,
		})
	}
	return out
}

// setMetrics has Prometheus find the pods' metrics, by annotations that most installations know.
func setMetrics(t *corev1.PodTemplateSpec, m *runnerapi.MetricsPort) {
	if m == nil {
		return
	}
	for name, value := range map[string]string{
		"scrape": "true", "port": strconv.Itoa(int(m.Port)), "path": cmp.Or(m.Path, "/metrics"),
	} {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, "prometheus.io/"+name, value)
	}
}

// containerOf returns the App's own container, which has the App's name.
func containerOf(a *v1alpha1.App) corev1.Container {
	c := corev1.Container{
		Name: a.Name, Image: a.Spec.Image, Command: a.Spec.Command, Args: a.Spec.Args,
		Env: env(a.Spec.Env), EnvFrom: envFrom(a.Spec.EnvFrom), Resources: resources(sized(a)),
		StartupProbe: probe(a.Spec.Probes.Startup), ReadinessProbe: probe(a.Spec.Probes.Readiness),
		LivenessProbe:            probe(a.Spec.Probes.Liveness),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError, // the diagnosis shows it
		SecurityContext:          containerSecurity(a.Spec.Security),
		VolumeMounts:             mounts(a),
		Lifecycle:                lifecycle(a),
	}
	for _, p := range a.Spec.Ports {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: p.Name, ContainerPort: p.Port, Protocol: protocol(p)})
	}
	return c
}

// initContainers returns the init containers. They have the App's environment, files and volumes,
// and their own settings.
func initContainers(a *v1alpha1.App) []corev1.Container {
	out := make([]corev1.Container, 0, len(a.Spec.InitContainers))
	for _, spec := range a.Spec.InitContainers {
		image := cmp.Or(spec.Image, a.Spec.Image)
		out = append(out, corev1.Container{
			Name: spec.Name, Image: image, Command: spec.Command, Args: spec.Args,
			Env: env(overlaid(a.Spec.Env, spec.Env)), EnvFrom: envFrom(a.Spec.EnvFrom),
			Resources: resources(spec.Resources), VolumeMounts: mounts(a),
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			SecurityContext:          containerSecurity(a.Spec.Security),
		})
	}
	return out
}

// overlaid merges the variables of both lists; the second list wins.
func overlaid(below, above []runnerapi.EnvVar) []runnerapi.EnvVar {
	names := map[string]bool{}
	for _, v := range above {
		names[v.Name] = true
	}
	var out []runnerapi.EnvVar
	for _, v := range below {
		if !names[v.Name] {
			out = append(out, v)
		}
	}
	return append(out, above...)
}

// podSecurity and containerSecurity return Kubernetes' restricted level, loosened where the spec
// allows it.
func podSecurity(s *runnerapi.Security) *corev1.PodSecurityContext {
	out := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(s == nil || !s.AllowRoot),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if s != nil {
		out.RunAsUser, out.RunAsGroup, out.FSGroup = s.RunAsUser, s.RunAsGroup, s.FSGroup
		if s.FSGroup != nil { // do not walk the files of a large volume at each start
			out.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
		}
	}
	return out
}

func containerSecurity(s *runnerapi.Security) *corev1.SecurityContext {
	out := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if s != nil {
		out.AllowPrivilegeEscalation = new(s.AllowPrivilegeEscalation)
		out.ReadOnlyRootFilesystem = new(s.ReadOnlyRootFilesystem)
		for _, c := range s.AddCapabilities {
			out.Capabilities.Add = append(out.Capabilities.Add, corev1.Capability(c))
		}
	}
	return out
}

// spread puts the pods on different nodes where possible, unless the spec says otherwise. A
// DaemonSet is always spread.
func spread(a *v1alpha1.App) []corev1.TopologySpreadConstraint {
	s := a.Spec.Spread
	switch {
	case a.Spec.Type == runnerapi.TypeDaemonSet, s == nil && a.Spec.Type.Runs(), s != nil && s.When == "Never":
		return nil
	case s == nil:
		s = &runnerapi.Spread{}
	}
	over, when := s.Over, corev1.ScheduleAnyway
	if len(over) == 0 {
		over = []string{corev1.LabelHostname}
	}
	if s.When == "Required" {
		when = corev1.DoNotSchedule
	}
	var out []corev1.TopologySpreadConstraint
	for _, key := range over {
		out = append(out, corev1.TopologySpreadConstraint{
			MaxSkew: cmp.Or(s.MaxSkew, 1), TopologyKey: key, WhenUnsatisfiable: when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: objectmeta.AppLabels(a.Name)},
		})
	}
	return out
}
