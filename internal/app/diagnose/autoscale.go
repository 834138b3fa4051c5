package diagnose

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// noRequest is the autoscaler's complaint of a container without the request that it is to
// keep a percentage of.
var noRequest = regexp.MustCompile(`missing request for (\w+)(?: in container (\S+) of Pod (\S+))?`)

// autoscaling finds an autoscaler that cannot decide, or cannot apply its decision. Every
// autoscaler reports that at its start, until it has figures of the pods.
func autoscaling(ev *Evidence) Finding {
	h := ev.Autoscaler
	if h == nil {
		return Finding{}
	}
	var all Finding
	for _, c := range h.Status.Conditions {
		if !hinders(c) {
			continue
		}
		since := c.LastTransitionTime.Time
		for _, pod := range ev.Pods { // of new pods there are no figures yet
			if ready, is := readySince(pod); is && ready.After(since) {
				since = ready
			}
		}
		if left := since.Add(ev.Stabilization.metrics()).Sub(ev.Now); left > 0 {
			all.Recheck = Sooner(all.Recheck, left)
			continue
		}
		all.Diagnosis = unscaled(h, c)
		return all
	}
	return all
}

// hinders reports whether a condition means trouble: not that the autoscaler is turned off, or that
// it waits a while after it has scaled.
func hinders(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
	if c.Status != corev1.ConditionFalse || c.Reason == "ScalingDisabled" || strings.HasPrefix(c.Reason, "Backoff") {
		return false
	}
	return c.Type == autoscalingv2.ScalingActive || c.Type == autoscalingv2.AbleToScale
}

func unscaled(h *autoscalingv2.HorizontalPodAutoscaler, c autoscalingv2.HorizontalPodAutoscalerCondition) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{
		Cause: runnerapi.CauseAutoscalingFailed, Object: "horizontalpodautoscaler/" + h.Name,
		Message: "the autoscaler does not change the number of pods: " + clip(c.Message),
	}
	resource := cmp.Or(resourceOf(c.Message), "cpu")
	switch m := noRequest.FindStringSubmatch(c.Message); {
	case m != nil && m[2] != "":
		d.Container = m[2]
		d.Message = fmt.Sprintf("the autoscaler does not change the number of pods: container %s of pod %s requests no %s, of which it is to keep a percentage",
			m[2], m[3], m[1])
		d.Fix = fmt.Sprintf("set resources.requests.%s of container %s; each container of the pods needs it", m[1], m[2])
	case m != nil:
		d.Fix = fmt.Sprintf("set resources.requests.%s of each container of the pods", m[1])
	case strings.Contains(c.Message, "no metrics returned matched known pods"):
		d.Fix = fmt.Sprintf("set resources.requests.%s above 0: the autoscaler is to keep a percentage of it", resource)
	case strings.Contains(c.Message, "resource metrics API"), strings.Contains(c.Message, "metrics.k8s.io"):
		d.Fix = "install metrics-server in the cluster, or repair it (kubectl get apiservice v1beta1.metrics.k8s.io)"
	case c.Reason == "AmbiguousSelector":
		d.Fix = fmt.Sprintf("leave one autoscaler for these pods (kubectl -n %s get hpa)", h.Namespace)
	case c.Reason == "FailedGetScale":
		d.Fix = "correct scaleTargetRef to a workload that exists"
	default:
		d.Fix = fmt.Sprintf("see that what serves the metric runs (kubectl get apiservices; kubectl -n %s describe hpa %s)", h.Namespace, h.Name)
	}
	return d
}

// resourceOf returns the resource that a message names.
func resourceOf(message string) string {
	for _, name := range []string{"cpu", "memory"} {
		if strings.Contains(message, "failed to get "+name+" ") {
			return name
		}
	}
	return ""
}

// metrics returns the patience with autoscalers, the default where none is set.
func (s Stabilization) metrics() time.Duration {
	return cmp.Or(s.Metrics, DefaultStabilization.Metrics)
}
