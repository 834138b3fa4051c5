package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// maxTaints bounds how many a message names.
const maxTaints = 5

// namedTaint is a taint as older schedulers name it. Newer ones
// only count the nodes.
var namedTaint = regexp.MustCompile(`untolerated taint(?:\(s\)|s)? ?\{([^}]*)\}`)

// unnamed reports whether a scheduler speaks of taints without naming any.
func unnamed(message string) bool {
	return strings.Contains(message, "untolerated taint") && !namedTaint.MatchString(message)
}

// WantsTaints reports whether the diagnosis depends on the nodes' taints or on their capacity.
func WantsTaints(ds *appsv1.DaemonSet, pods []*corev1.Pod) bool {
	short := func(c corev1.PodCondition) bool { return unnamed(c.Message) || insufficient.MatchString(c.Message) }
	return ds != nil && ds.Status.DesiredNumberScheduled == 0 || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return alive(pod) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && short(c)
		})
	})
}

// taintsIn returns those that a scheduler names.
func taintsIn(message string) []string {
	var out []string
	for _, m := range namedTaint.FindAllStringSubmatch(message, -1) {
		out = add(out, strings.TrimSuffix(strings.TrimSpace(m[1]), ":"))
	}
	return out
}

// taintsOf returns the nodes' taints that keep pods away. It leaves out the taint of a cordoned
// node, which the scheduler reports in another form.
func taintsOf(nodes []*corev1.Node) []string {
	var out []string
	for _, node := range nodes {
		for _, t := range node.Spec.Taints {
			if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable && len(out) < maxTaints {
				out = add(out, t.ToString())
			}
		}
	}
	return out
}

func add(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

func listed(taints []string) string {
	if len(taints) == 0 {
		return ""
	}
	return ": " + strings.Join(taints, ", ")
}

func taintFixes(taints []string) []string {
	var out []string
	for _, t := range taints {
		out = add(out, taintFix(t))
	}
	return out
}

func taintFix(t string) string {
	switch {
	case strings.HasPrefix(t, corev1.TaintNodeNotReady), strings.HasPrefix(t, corev1.TaintNodeUnreachable):
		return "bring the node back, which is not ready (kubectl describe nodes)"
	case strings.HasPrefix(t, corev1.TaintNodeDiskPressure):
		return "free disk space on the node (kubectl describe nodes)"
	case strings.HasPrefix(t, corev1.TaintNodeMemoryPressure):
		return "free memory on the node (kubectl describe nodes)"
	}
	key := t[:strings.IndexAny(t+":", "=:")]
	return fmt.Sprintf("remove the taint %s from a node (kubectl taint nodes NODE %s-), add a toleration of it, or add a node without it", t, key)
}
