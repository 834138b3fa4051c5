package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// waitsFor returns what has to happen before the App is healthy, while nothing is known to be
// wrong. The pods are those of the newest spec. It has no countdown: a status is written when it
// changes.
func waitsFor(a *v1alpha1.App, m made, pods []*corev1.Pod, p runnerapi.Phase, f diagnose.Finding) string {
	open := p == runnerapi.PhaseProgressing || p == runnerapi.PhaseDegraded
	if !open || f.Diagnosis != nil {
		return ""
	}
	figures, ready := workload.FiguresOf(m.workload), workload.ReadyPods(pods)
	switch {
	case m.workload == nil:
		return "its objects to be created"
	case !figures.Seen:
		return "Kubernetes to take the newest spec"
	case f.Initializing != "": // all the rest waits for it too
		return f.Initializing
	case a.Spec.Type.Runs():
		return orWaiting(pods, "its run to end")
	case figures.Updated < figures.Desired:
		return orWaiting(pods, fmt.Sprintf("pods of the newest spec: %d of %d are there", figures.Updated, figures.Desired))
	case figures.Ready < figures.Desired:
		return orWaiting(pods, fmt.Sprintf("%d of %d pods to become ready", figures.Desired-figures.Ready, figures.Desired))
	case ready < figures.Desired: // pods of an older spec are counted with them
		return orWaiting(pods, fmt.Sprintf("%d of %d pods of the newest spec to become ready", figures.Desired-ready, figures.Desired))
	case figures.Replicas > figures.Desired || figures.Misplaced > 0:
		return "pods of an older spec to stop"
	case f.Waiting != "":
		return f.Waiting
	case figures.Available < figures.Desired:
		return fmt.Sprintf("%d of %d pods to stay ready for a moment", figures.Desired-figures.Available, figures.Desired)
	}
	return ""
}

// linesOf returns the last lines of the init container that an App waits for.
func linesOf(f diagnose.Finding, waitingFor string) []string {
	if waitingFor == "" || waitingFor != f.Initializing {
		return nil
	}
	return f.LastLines
}

// orWaiting adds the container that its pod waits for.
func orWaiting(pods []*corev1.Pod, what string) string {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || workload.PodReady(pod) {
			continue
		}
		if container, reason := diagnose.WaitsFor(pod); container != "" {
			return fmt.Sprintf("%s; container %s of pod %s: %s", what, container, pod.Name, reason)
		}
	}
	return what
}
