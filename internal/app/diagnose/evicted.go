package diagnose

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	evictedFix = "set resources.requests of memory and ephemeral-storage to what the App needs, free some on the node, or add a node (kubectl describe node)"
	// evictedFor is how long an eviction is a reason for what is missing.
	evictedFor = 10 * time.Minute
)

// evicted finds a pod that was taken off its node, while none has taken its place.
func evicted(ev *Evidence) *runnerapi.Diagnosis {
	if ev.Spec.Type.Runs() {
		return nil
	}
	var gone *corev1.Pod
	for _, pod := range ev.Pods {
		if Ready(pod) && pod.DeletionTimestamp.IsZero() {
			continue
		}
		if why(pod) != "" && ev.Now.Sub(endOf(pod)) < evictedFor && (gone == nil || endOf(pod).After(endOf(gone))) {
			gone = pod
		}
	}
	if gone == nil || replaced(ev, gone) {
		return nil
	}
	return &runnerapi.Diagnosis{Cause: runnerapi.CauseEvicted, Object: "pod/" + gone.Name, Message: why(gone), Fix: fixOf(gone)}
}

// replaced reports whether a pod that was made after this one is ready.
func replaced(ev *Evidence, gone *corev1.Pod) bool {
	for _, pod := range ev.Pods {
		if Ready(pod) && pod.DeletionTimestamp.IsZero() && pod.CreationTimestamp.After(gone.CreationTimestamp.Time) {
			return true
		}
	}
	return false
}

// why a pod was taken off its node; empty for one that was not.
func why(pod *corev1.Pod) string {
	if pod.Status.Reason == "Evicted" {
		return fmt.Sprintf("node %s evicted pod %s: %s", pod.Spec.NodeName, pod.Name, clip(pod.Status.Message))
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case corev1.PodReasonPreemptionByScheduler:
			return fmt.Sprintf("pod %s was preempted on node %s: a pod of a higher priority needed the room (%s)", pod.Name, pod.Spec.NodeName, clip(c.Message))
		case corev1.PodReasonTerminationByKubelet:
			return fmt.Sprintf("node %s ended pod %s: %s", pod.Spec.NodeName, pod.Name, clip(c.Message))
		}
	}
	return ""
}

func fixOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonPreemptionByScheduler {
			return "add a node, ask for less in resources.requests, or give the pods a priority class that is not below the other's (kubectl get priorityclasses)"
		}
	}
	return evictedFix
}

func endOf(pod *corev1.Pod) time.Time {
	at := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if (c.Type == corev1.DisruptionTarget || c.Type == corev1.PodReady) && c.LastTransitionTime.After(at) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}

func evictedPod(j *batchv1.Job, pods []*corev1.Pod) *corev1.Pod {
	for _, pod := range pods {
		if metav1.IsControlledBy(pod, j) && pod.Status.Reason == "Evicted" {
			return pod
		}
	}
	return nil
}
