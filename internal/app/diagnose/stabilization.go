package diagnose

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Stabilization is how long pods have to stay ready, without a restart, before
// their App is healthy.
type Stabilization struct {
	Unprobed    time.Duration // of a pod without a readiness or liveness probe
	Least, Most time.Duration // limits for pods with probes
	// Alive is the limit for liveness probes that begin late, or try seldom: until they have
	// succeeded once, Most does not apply.
	Alive time.Duration
	// Volume is how long a volume may be in the making before it counts as a trouble though
	// the cluster reports no failure: clouds take their time.
	Volume time.Duration
	// Metrics is how long an autoscaler may have no figures of the pods: a healthy one reports that
	// for its first minute.
	Metrics time.Duration
}

// DefaultStabilization is the agent's default.
var DefaultStabilization = Stabilization{
	Unprobed: 30 * time.Second, Least: 10 * time.Second, Most: 5 * time.Minute, Alive: time.Hour,
	Volume: 2 * time.Minute, Metrics: 2 * time.Minute,
}

// WithUnprobed returns the default with another time for pods without probes, which also limits the
// least time from below.
func WithUnprobed(d time.Duration) Stabilization {
	s := DefaultStabilization
	s.Unprobed, s.Least = d, min(s.Least, d)
	return s
}

// volume returns the patience with volumes, the default where none is set.
func (s Stabilization) volume() time.Duration {
	return cmp.Or(s.Volume, DefaultStabilization.Volume)
}

// of returns the time that the pod's probes ask for, counted from when it became ready: each probe
// has had time to fail as often as it may. Most limits the time, except for a liveness probe whose
// first try comes later than that. It must have succeeded too, and late is then its container.
func (s Stabilization) of(pod *corev1.Pod, ready time.Time) (needs time.Duration, late string) {
	var longest, alive time.Duration
	probed := false
	for _, c := range containersOf(pod) {
		if p := c.spec.ReadinessProbe; p != nil {
			probed, longest = true, max(longest, tries(p))
		}
		p := c.spec.LivenessProbe
		if p == nil {
			continue
		}
		begins := c.livenessIn(ready)
		failed := begins + tries(p) + timeout(p)
		probed, longest = true, max(longest, failed)
		if begins+period(p)+timeout(p) > s.Most && failed > alive {
			alive, late = failed, c.spec.Name
		}
	}
	if !probed {
		return s.Unprobed, ""
	}
	needs = min(max(longest, s.Least), s.Most)
	if alive = min(alive, max(s.Alive, s.Most)); alive > needs {
		return alive, late
	}
	return needs, ""
}

// livenessIn returns how long after the pod became ready the liveness probe's initial delay ends,
// which counts from the container's start.
func (c container) livenessIn(ready time.Time) time.Duration {
	if !c.runs() {
		return 0
	}
	return max(c.status.State.Running.StartedAt.Add(seconds(c.spec.LivenessProbe.InitialDelaySeconds)).Sub(ready), 0)
}

func period(p *corev1.Probe) time.Duration { return seconds(max(p.PeriodSeconds, 1)) }

func timeout(p *corev1.Probe) time.Duration { return seconds(max(p.TimeoutSeconds, 1)) }

// stay finds a pod that has not been ready for long enough.
func stay(ev *Evidence) Finding {
	var all Finding
	if ev.Spec.Type.Runs() && !ev.Bare || ev.Proven { // a bare pod may serve until it fails
		return all
	}
	var until time.Time
	var needs time.Duration
	var late string
	for _, pod := range ev.Pods {
		since, ready := readySince(pod)
		if !alive(pod) || !ready {
			continue
		}
		need, container := ev.Stabilization.of(pod, since)
		left := min(since.Add(need).Sub(ev.Now), need) // a node's clock may be ahead
		if left <= 0 {
			continue
		}
		all.Unsettled = true
		if end := since.Add(need); end.After(until) {
			until, needs, late, all.Recheck = end, need, container, left
		}
	}
	if all.Unsettled {
		all.Waiting = fmt.Sprintf("its pods to stay ready for %s without a restart, until %s", needs, until.UTC().Format(time.RFC3339))
	}
	if late != "" {
		all.Waiting += fmt.Sprintf(": the liveness probe of container %s has to succeed once", late)
	}
	return all
}

// readySince returns when a pod became ready.
func readySince(pod *corev1.Pod) (since time.Time, ready bool) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// WaitsFor returns the container that keeps a pod from being ready, and its state.
func WaitsFor(pod *corev1.Pod) (container, state string) {
	for _, s := range pod.Status.InitContainerStatuses {
		switch {
		case s.State.Running != nil && !sidecar(pod, s.Name):
			return s.Name, "an init container that has not ended"
		case s.State.Running != nil && !ptr.Deref(s.Started, false):
			return s.Name, "a sidecar that has not started"
		case s.State.Waiting != nil && s.State.Waiting.Reason != "PodInitializing":
			return s.Name, s.State.Waiting.Reason
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil:
			return s.Name, s.State.Waiting.Reason
		case s.State.Running != nil && !s.Ready:
			return s.Name, "runs, not ready yet"
		}
	}
	return "", ""
}

// Ready reports whether a pod is ready.
func Ready(pod *corev1.Pod) bool {
	_, ready := readySince(pod)
	return ready
}
