package diagnose

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ProbeKind is one of Kubernetes' three probes.
type ProbeKind string

// The probes, as the kubelet's events call them.
const (
	Startup   ProbeKind = "Startup"
	Readiness ProbeKind = "Readiness"
	Liveness  ProbeKind = "Liveness"
)

// ProbeFailure is the newest failure of a probe.
type ProbeFailure struct {
	Answer string    // what the probe got
	Time   time.Time // of this failure
	First  time.Time // of the first failure of this probe that is known
}

// ProbeFailures are those of one pod.
type ProbeFailures map[ProbeKind]ProbeFailure

// ParseProbeEvent reads the message of the kubelet's event Unhealthy.
func ParseProbeEvent(message string) (kind ProbeKind, answer string, ok bool) {
	for _, kind := range []ProbeKind{Startup, Readiness, Liveness} {
		for _, verb := range []string{" probe failed: ", " probe errored: ", " probe errored and resulted in unknown state: "} {
			if rest, ok := strings.CutPrefix(message, string(kind)+verb); ok {
				return kind, clip(rest), true
			}
		}
	}
	return "", "", false
}

// probeKill finds a container that the kubelet ended because a probe failed:
// by its exit code alone it would look like a crash.
func probeKill(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason == "OOMKilled" || c.status.RestartCount == 0 {
		return Finding{}
	}
	left := c.settlesIn(end, ev)
	if c.runs() && left <= 0 && c.status.Ready {
		return Finding{}
	}
	for _, kind := range []ProbeKind{Startup, Liveness} {
		failure, failed := ev.Probes[c.pod.UID][kind]
		if p := c.probeOf(kind); !failed || p == nil || !failure.within(end) || ran(end) < soonestKill(p) {
			continue
		}
		d := c.failing(kind, failure.Answer)
		d.ExitCode, d.LastLines = &end.ExitCode, lastLines(end.Message)
		return Finding{Diagnosis: d, Recheck: left}
	}
	// A kubelet that has reported often enough about a pod reports nothing more for minutes.
	if p := ev.Previous; p != nil && p.Cause == runnerapi.CauseProbeFailing && p.Container == c.status.Name &&
		p.Object == "pod/"+c.pod.Name && p.ExitCode != nil && *p.ExitCode == end.ExitCode {
		return Finding{Diagnosis: p.DeepCopy(), Recheck: left}
	}
	return Finding{}
}

// soonestKill returns how long a container runs at least before the kubelet ends it for a probe
// that has failed as often as it may. The times of a run are whole seconds. What ends before has
// ended by itself.
func soonestKill(p *corev1.Probe) time.Duration {
	return seconds(p.InitialDelaySeconds) + tries(p) - seconds(max(p.PeriodSeconds, 1)) - time.Second
}

// within reports whether the probe failed during a run that ended so. It may have failed in the
// next run since.
func (f ProbeFailure) within(end *corev1.ContainerStateTerminated) bool {
	first := f.First
	if first.IsZero() {
		first = f.Time
	}
	return !f.Time.Before(end.StartedAt.Time) && !first.After(end.FinishedAt.Add(time.Second))
}

// probe finds a container that runs but does not become ready: once its
// readiness probe had time to fail as often as it may, and not before.
func probe(c container, ev *Evidence) Finding {
	p := c.spec.ReadinessProbe
	if !c.runs() || c.status.Ready || p == nil || c.status.Started != nil && !*c.status.Started {
		return Finding{}
	}
	started := c.status.State.Running.StartedAt.Time
	failure := ev.Probes[c.pod.UID][Readiness]
	if failure.Time.Before(started.Truncate(time.Second)) {
		failure = ProbeFailure{}
	}
	if left := c.unreadyBy(started, failure).Add(toldWithin).Sub(ev.Now); left > 0 {
		return Finding{Recheck: left}
	}
	return found(c.failing(Readiness, failure.Answer))
}

// toldWithin is the tolerance for times in whole seconds, rounded down, and for the time from a
// probe's answer to the kubelet's report to the API server. A pod that became ready at the last
// moment has not failed.
const toldWithin = 2 * time.Second

// unreadyBy returns until when a container that started may be unready. With a startup probe, the
// readiness probe begins after that has succeeded, which only its first failure shows. Before that,
// it is the time by which the startup probe must have succeeded.
func (c container) unreadyBy(started time.Time, failure ProbeFailure) time.Time {
	p, startup := c.spec.ReadinessProbe, c.spec.StartupProbe
	switch {
	case startup == nil:
		return started.Add(seconds(p.InitialDelaySeconds) + tries(p))
	case !failure.First.Before(started.Truncate(time.Second)):
		return failure.First.Add(tries(p) - seconds(max(p.PeriodSeconds, 1)))
	}
	begun := started.Add(seconds(startup.InitialDelaySeconds) + tries(startup))
	return begun.Add(seconds(p.InitialDelaySeconds) + tries(p))
}

// tries returns how long a probe has to fail before it counts.
func tries(p *corev1.Probe) time.Duration {
	return seconds(max(p.PeriodSeconds, 1)) * time.Duration(max(p.FailureThreshold, 1))
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func (c container) probeOf(kind ProbeKind) *corev1.Probe {
	switch kind {
	case Startup:
		return c.spec.StartupProbe
	case Readiness:
		return c.spec.ReadinessProbe
	case Liveness:
		return c.spec.LivenessProbe
	}
	return nil
}

func (c container) failing(kind ProbeKind, answer string) *runnerapi.Diagnosis {
	name := strings.ToLower(string(kind))
	what := fmt.Sprintf("the %s probe (%s) fails", name, asks(c.probeOf(kind)))
	if answer != "" {
		what += ": " + answer
	}
	fix := "make the App answer the probe, or correct probes." + name
	if limit := c.spec.Resources.Limits.Cpu(); !limit.IsZero() && slowAnswer(answer) && limit.Cmp(plentyCPU) < 0 {
		what += fmt.Sprintf("; the container is held to %s of a CPU, which may be why it is late", limit)
		fix = "raise resources.limits.cpu, or timeoutSeconds in probes." + name + "; " + fix
	}
	switch kind {
	case Startup:
		what += "; the container was restarted because of it"
		fix += "; a slow start needs a higher failureThreshold or periodSeconds"
	case Liveness:
		what += "; the container was restarted because of it"
	case Readiness:
		what += "; the pod gets no traffic"
	}
	return c.diagnosis(runnerapi.CauseProbeFailing, what, fix)
}

// plentyCPU is a limit from which on being throttled is not the first thing to think of.
var plentyCPU = resource.MustParse("500m")

// slowAnswer reports whether a probe failed because no answer came in time.
func slowAnswer(answer string) bool {
	return containsAny(answer, []string{"context deadline exceeded", "Client.Timeout", "timed out", "timeout"})
}

// asks returns what a probe does, in a few words.
func asks(p *corev1.Probe) string {
	switch {
	case p == nil:
		return "unknown"
	case p.HTTPGet != nil:
		return fmt.Sprintf("GET %s on port %s", p.HTTPGet.Path, p.HTTPGet.Port.String())
	case p.TCPSocket != nil:
		return "TCP port " + p.TCPSocket.Port.String()
	case p.Exec != nil:
		return "command " + clip(strings.Join(p.Exec.Command, " "))
	}
	return "unknown"
}

// WantsProbes reports whether the diagnosis of a pod depends on its probes' results.
func WantsProbes(pod *corev1.Pod, now time.Time) bool {
	if !alive(pod) {
		return false
	}
	for _, c := range containersOf(pod) {
		if c.lastEnd() != nil && (c.spec.StartupProbe != nil || c.spec.LivenessProbe != nil) {
			return true
		}
		if probe(c, &Evidence{Now: now}).Diagnosis != nil || c.startedSlowly() {
			return true
		}
	}
	return false
}

// startedSlowly reports whether a container has passed its startup probe and is not ready yet. The
// failures of its readiness probe show when it should be.
func (c container) startedSlowly() bool {
	return c.runs() && !c.status.Ready && c.spec.StartupProbe != nil && c.spec.ReadinessProbe != nil &&
		c.status.Started != nil && *c.status.Started
}
