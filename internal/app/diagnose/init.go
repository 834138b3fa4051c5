package diagnose

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// initIn is how long an init container may run before its output is read.
const initIn = 30 * time.Second

// InitLog is the output of an init container that has run for long.
type InitLog struct{ Container, Lines string }

// WantsInitLog names the init container whose log is worth reading.
func WantsInitLog(pod *corev1.Pod, now time.Time) (container string) {
	name, since := hanging(pod)
	if name == "" || now.Sub(since) < initIn {
		return ""
	}
	return name
}

// hanging returns the init container that runs now, and since when. One that continues beside the
// others is meant to run. The kubelet calls either of them started.
func hanging(pod *corev1.Pod) (name string, since time.Time) {
	if !alive(pod) {
		return "", time.Time{}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Running != nil && !sidecar(pod, s.Name) {
			return s.Name, s.State.Running.StartedAt.Time
		}
	}
	return "", time.Time{}
}

func sidecar(pod *corev1.Pod, name string) bool {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
	}
	return false
}

// initializing finds an init container that takes its time.
func initializing(ev *Evidence) Finding {
	for _, pod := range ev.Pods {
		name, since := hanging(pod)
		if name == "" {
			continue
		}
		if left := since.Add(initIn).Sub(ev.Now); left > 0 {
			return Finding{Recheck: left}
		}
		f := Finding{
			Initializing: fmt.Sprintf("init container %s of pod %s to end: it has run since %s", name, pod.Name, since.UTC().Format(time.RFC3339)),
			Recheck:      later(ev.Now.Sub(since)),
		}
		if f.LastLines = lastLines(ev.Init[pod.UID].Lines); len(f.LastLines) > 0 {
			f.Initializing += fmt.Sprintf("; its last line: %q", f.LastLines[len(f.LastLines)-1])
		}
		return f
	}
	return Finding{}
}
