package diagnose

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// deadline finds a rollout that stopped getting anywhere without any of the
// other signals.
func deadline(ev *Evidence) *runnerapi.Diagnosis {
	if ev.Deployment == nil {
		return podDeadline(ev)
	}
	for _, c := range ev.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded" {
			return passed(ev, "deployment/"+ev.Deployment.Name, seconds(ptr.Deref(ev.Deployment.Spec.ProgressDeadlineSeconds, defaultDeadline)))
		}
	}
	return nil
}

// defaultDeadline is Kubernetes' own of a Deployment, in seconds.
const defaultDeadline = 600

// podDeadline finds a missed deadline of a StatefulSet or DaemonSet, whose controllers have none: a
// pod of the newest spec that has not been ready for that long.
func podDeadline(ev *Evidence) *runnerapi.Diagnosis {
	if ev.Spec.Type != runnerapi.TypeStatefulSet && ev.Spec.Type != runnerapi.TypeDaemonSet {
		return nil
	}
	for _, pod := range ev.Pods {
		limit := limitOf(ev, pod)
		if since, waits := unreadySince(pod); waits && ev.Now.Sub(since) >= limit {
			return passed(ev, "pod/"+pod.Name, limit)
		}
	}
	return nil
}

// limitOf returns the spec's, or Kubernetes' own of a Deployment where the pod's probes do not
// allow for longer.
func limitOf(ev *Evidence, pod *corev1.Pod) time.Duration {
	if ev.Spec.ProgressDeadline != nil {
		return seconds(*ev.Spec.ProgressDeadline)
	}
	limit := seconds(defaultDeadline)
	for _, c := range pod.Spec.Containers {
		if p := c.StartupProbe; p != nil {
			limit = max(limit, seconds(p.InitialDelaySeconds+defaultDeadline/10)+tries(p))
		}
	}
	return limit
}

// deadlineIn returns when a pod's deadline passes; 0 for never.
func deadlineIn(ev *Evidence) (left time.Duration) {
	if ev.Spec.Type != runnerapi.TypeStatefulSet && ev.Spec.Type != runnerapi.TypeDaemonSet {
		return 0
	}
	for _, pod := range ev.Pods {
		if since, waits := unreadySince(pod); waits {
			left = Sooner(left, max(since.Add(limitOf(ev, pod)).Sub(ev.Now), time.Second))
		}
	}
	return left
}

// unreadySince returns since when a pod has not been ready.
func unreadySince(pod *corev1.Pod) (since time.Time, waits bool) {
	if !alive(pod) || Ready(pod) {
		return time.Time{}, false
	}
	since = pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since, !since.IsZero()
}

func passed(ev *Evidence, object string, limit time.Duration) *runnerapi.Diagnosis {
	d := &runnerapi.Diagnosis{
		Cause: runnerapi.CauseDeadlinePassed, Object: object,
		Message: fmt.Sprintf("the rollout made no progress for %.0f s%s", limit.Seconds(), stuck(ev.Pods)),
		Fix:     "look at the pod's events (kubectl describe pod) and the App's logs; if it needs longer, raise progressDeadlineSeconds",
	}
	for _, pod := range ev.Pods {
		if name, lines := ev.Init[pod.UID].Container, ev.Init[pod.UID].Lines; name != "" {
			d.Container, d.LastLines = name, lastLines(lines)
			break
		}
	}
	return d
}

// stuck names a pod that is not ready and what it waits for.
func stuck(pods []*corev1.Pod) string {
	for _, pod := range pods {
		if !alive(pod) {
			continue
		}
		if container, state := WaitsFor(pod); container != "" {
			return fmt.Sprintf("; pod %s: container %s: %s", pod.Name, container, state)
		}
	}
	return ""
}
