package diagnose

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// seenBy is more than a live kubelet takes to notice a new pod.
	seenBy = 2 * time.Second
	// lookAgain is the interval of looks at a lost node. The pods show that the node is back, but
	// nothing shows that it was deleted.
	lookAgain = 30 * time.Second
	// reasonNodeLost is the reason in a pod's status for a node that does not respond. Kubernetes'
	// API has no constant for it.
	reasonNodeLost = "NodeLost"
	byTaintManager = "DeletionByTaintManager"
)

// lost finds a pod on a node that does not respond, is not ready or is gone. It takes precedence
// over the pod's own status, which is outdated.
func lost(ev *Evidence) Finding {
	var recheck time.Duration
	for _, pod := range ev.Pods {
		node, asked := ev.Nodes[pod.Spec.NodeName]
		if asked && WantsNode(pod, ev.Now) {
			if trouble := troubleOf(node); trouble != "" {
				return Finding{Diagnosis: onLostNode(pod, node == nil, trouble), Recheck: lookAgain}
			}
		}
		recheck = Sooner(recheck, askAt(pod, ev.Now))
	}
	return Finding{Recheck: recheck}
}

// WantsNode reports whether the diagnosis of a pod depends on its node's state.
func WantsNode(pod *corev1.Pod, now time.Time) bool {
	switch {
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return false
	case disowned(pod):
		return pod.DeletionTimestamp.IsZero() || keepsItsName(pod)
	case !pod.DeletionTimestamp.IsZero():
		return keepsItsName(pod) && now.After(pod.DeletionTimestamp.Time)
	}
	since, waits := unseen(pod)
	return waits && now.Sub(since) >= seenBy
}

// askAt returns when time alone makes it worth reading the node; 0 for never.
func askAt(pod *corev1.Pod, now time.Time) time.Duration {
	if end := pod.DeletionTimestamp; !end.IsZero() {
		if !keepsItsName(pod) {
			return 0
		}
		return max(end.Sub(now)+time.Second, later(now.Sub(end.Time)))
	}
	since, waits := unseen(pod)
	if !waits {
		return 0
	}
	return max(seenBy-now.Sub(since), later(now.Sub(since)))
}

// disowned reports whether the pod was marked not ready by another component than its kubelet: by
// the kubelet's last report, its containers still are ready.
func disowned(pod *corev1.Pod) bool {
	ready, containers := corev1.ConditionUnknown, corev1.ConditionUnknown
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady:
			ready = c.Status
		case c.Type == corev1.ContainersReady:
			containers = c.Status
		case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == byTaintManager:
			return true
		}
	}
	return pod.Status.Reason == reasonNodeLost || ready == corev1.ConditionFalse && containers == corev1.ConditionTrue
}

// unseen reports whether a pod has a node whose kubelet has not noticed it, and since when.
func unseen(pod *corev1.Pod) (since time.Time, waits bool) {
	if pod.Spec.NodeName == "" || !pod.Status.StartTime.IsZero() || !alive(pod) {
		return time.Time{}, false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// keepsItsName reports whether no other pod takes the place of this one before it is gone.
func keepsItsName(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "StatefulSet"
}

// troubleOf returns what is wrong with a node, or an empty string. A nil node is gone.
func troubleOf(node *corev1.Node) string {
	if node == nil {
		return "is no longer part of the cluster"
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		since := c.LastTransitionTime.UTC().Format(time.RFC3339)
		switch c.Status {
		case corev1.ConditionTrue:
			return ""
		case corev1.ConditionFalse:
			return fmt.Sprintf("has not been ready since %s: %s", since, clip(c.Message))
		}
		return fmt.Sprintf("has not answered since %s: %s", since, clip(c.Message))
	}
	return "has never reported ready"
}

func onLostNode(pod *corev1.Pod, gone bool, trouble string) *runnerapi.Diagnosis {
	name := pod.Spec.NodeName
	d := &runnerapi.Diagnosis{
		Cause: runnerapi.CauseNodeLost, Object: "node/" + name,
		Message: fmt.Sprintf("node %s, which has pod %s, %s", name, pod.Name, trouble),
		Fix: fmt.Sprintf("bring node %s back (kubectl describe node %s); when it is gone for good, delete it (kubectl delete node %s): "+
			"Kubernetes then starts its pods elsewhere", name, name, name),
	}
	if gone {
		d.Fix = fmt.Sprintf("wait a minute, until Kubernetes has noticed and starts the pod elsewhere, or delete the pod "+
			"(kubectl -n %s delete pod %s --force)", pod.Namespace, pod.Name)
	}
	if !pod.DeletionTimestamp.IsZero() {
		d.Message += "; the pod cannot be replaced before the node confirms its end, or is deleted"
	}
	return d
}
