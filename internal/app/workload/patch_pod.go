package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	podsecurityapi "k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TemplateOf returns the template of a workload's pods, or nil.
func TemplateOf(o client.Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	}
	return nil
}

// complete gives the containers that a patch added what the App's own have, where the patch leaves
// it out: confinement, requests, and the last lines of their logs for the diagnosis.
func complete(was, is client.Object) {
	t := TemplateOf(is)
	if t == nil {
		return
	}
	before := TemplateOf(was).Spec
	had := slices.Concat(before.InitContainers, before.Containers)
	isNew := func(c corev1.Container) int {
		if slices.ContainsFunc(had, func(h corev1.Container) bool { return h.Name == c.Name }) {
			return 0
		}
		return 1
	}
	// kubectl takes the first one where none is named.
	slices.SortStableFunc(t.Spec.Containers, func(x, y corev1.Container) int { return isNew(x) - isNew(y) })
	for _, list := range [][]corev1.Container{t.Spec.InitContainers, t.Spec.Containers} {
		for i := range list {
			if isNew(list[i]) > 0 {
				completeContainer(&list[i])
			}
		}
	}
}

func completeContainer(c *corev1.Container) {
	strict := containerSecurity(nil)
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil {
		c.SecurityContext.AllowPrivilegeEscalation = strict.AllowPrivilegeEscalation
	}
	if c.SecurityContext.Capabilities == nil {
		c.SecurityContext.Capabilities = strict.Capabilities
	}
	if c.TerminationMessagePolicy == "" {
		c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	limits := runnerapi.ResourceAmounts{}
	if q, ok := c.Resources.Limits[corev1.ResourceCPU]; ok {
		limits.CPU = q.String()
	}
	if q, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
		limits.Memory = q.String()
	}
	for name, ask := range resources(runnerapi.Resources{Limits: limits}).Requests {
		if _, asked := c.Resources.Requests[name]; asked {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = ask
	}
}

// podLevels evaluates Kubernetes' pod security levels, as admission does in a namespace that has
// one.
var podLevels = func() podsecurity.Evaluator {
	e, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	if err != nil {
		panic(err) // of the library's own checks
	}
	return e
}()

// confined refuses a patch that makes pods less confined than the App's spec: a Runner loosens
// security there, where it never goes beyond the level baseline.
func confined(was, is client.Object) error {
	t := TemplateOf(is)
	if t == nil {
		return nil
	}
	beyond := violations(podsecurityapi.LevelBaseline, t)
	before := violations(podsecurityapi.LevelRestricted, TemplateOf(was))
	for _, v := range violations(podsecurityapi.LevelRestricted, t) {
		loosened := slices.ContainsFunc(before, func(b podsecurity.CheckResult) bool { return b.ForbiddenReason == v.ForbiddenReason })
		if !loosened {
			beyond = append(beyond, v)
		}
	}
	if len(beyond) == 0 {
		return nil
	}
	fix := "leave it out: nothing can allow it"
	if len(violations(podsecurityapi.LevelBaseline, t)) == 0 {
		fix = "leave it out, or see what security of the App's spec can loosen"
	}
	return invalid("", fix, "would make the pods less confined: %s (%s)", beyond[0].ForbiddenReason, beyond[0].ForbiddenDetail)
}

func violations(level podsecurityapi.Level, t *corev1.PodTemplateSpec) []podsecurity.CheckResult {
	lv := podsecurityapi.LevelVersion{Level: level, Version: podsecurityapi.LatestVersion()}
	return slices.DeleteFunc(podLevels.EvaluatePod(lv, &t.ObjectMeta, &t.Spec), func(r podsecurity.CheckResult) bool { return r.Allowed })
}
