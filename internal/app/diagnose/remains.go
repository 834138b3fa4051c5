package diagnose

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Remaining is why a pod still exists after its owner was deleted.
type Remaining struct {
	Waits string // what has to happen, as in "pod web-1 to stop on node n1"
	// Stuck reports that the pod does not go by itself: an operator or cluster owner has to act.
	Stuck bool
	// Recheck is the delay after which time alone can change the result; 0 for never.
	Recheck time.Duration
}

// RemainsByNode reports whether what keeps a pod depends on its node's state.
func RemainsByNode(pod *corev1.Pod, now time.Time) bool {
	return pod.Spec.NodeName != "" && !ended(pod) &&
		(disowned(pod) || !pod.DeletionTimestamp.IsZero() && now.After(pod.DeletionTimestamp.Time))
}

// Remains returns why a pod still exists. The node is the pod's, if RemainsByNode asked for it; nil
// means that it is gone.
func Remains(pod *corev1.Pod, node *corev1.Node, now time.Time) Remaining {
	held := strings.Join(pod.Finalizers, ", ")
	switch {
	case pod.DeletionTimestamp.IsZero():
		return Remaining{Waits: fmt.Sprintf("Kubernetes to delete pod %s", pod.Name)}
	case held != "" && ended(pod):
		return Remaining{
			Waits: fmt.Sprintf("finalizer %s of pod %s to be removed: the pod has stopped", held, pod.Name), Stuck: true,
		}
	}
	if RemainsByNode(pod, now) {
		if trouble := troubleOf(node); trouble != "" {
			return Remaining{
				Waits: fmt.Sprintf("pod %s to stop: node %s, which has it, %s; bring the node back or delete it",
					pod.Name, pod.Spec.NodeName, trouble),
				Stuck: true, Recheck: lookAgain,
			}
		}
	}
	return stopping(pod, held, now)
}

// stopping describes a pod that its node is about to stop, or was.
func stopping(pod *corev1.Pod, held string, now time.Time) Remaining {
	r := Remaining{Waits: "pod " + pod.Name + " to stop"}
	if pod.Spec.NodeName != "" {
		r.Waits += " on node " + pod.Spec.NodeName
	}
	end, ends := pod.DeletionTimestamp.Time, "ends"
	r.Recheck = end.Sub(now) + time.Second
	if now.After(end) {
		ends, r.Recheck = "ended", later(now.Sub(end))
	}
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace > 0 {
		r.Waits += fmt.Sprintf("; its grace period of %d s %s at %s", *grace, ends, end.UTC().Format(time.RFC3339))
	}
	if held != "" {
		r.Waits += "; finalizer " + held + " holds it as well"
	}
	return r
}

// ended reports whether a pod's containers have stopped for good. The kubelet then reports that, or
// removes the remaining grace period from the pod.
func ended(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	grace := pod.DeletionGracePeriodSeconds
	return !pod.DeletionTimestamp.IsZero() && grace != nil && *grace == 0 && len(pod.Finalizers) > 0
}
