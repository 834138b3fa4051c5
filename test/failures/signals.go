package failures

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Signal reports whether an object shows that something is wrong.
type Signal func(client.Object) bool

// containers returns an object's container statuses, if it is a pod.
func containers(o client.Object) []corev1.ContainerStatus {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	return append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...)
}

// Waits returns a container that waits for one of these reasons.
func Waits(reasons ...string) Signal {
	return func(o client.Object) bool {
		for _, c := range containers(o) {
			for _, reason := range reasons {
				if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
					return true
				}
			}
		}
		return false
	}
}

// Either returns a signal that matches one of two signals.
func Either(a, b Signal) Signal { return func(o client.Object) bool { return a(o) || b(o) } }

// Ended returns a container that ended for this reason.
func Ended(reason string) Signal {
	return func(o client.Object) bool {
		for _, c := range containers(o) {
			for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
				if state.Terminated != nil && state.Terminated.Reason == reason {
					return true
				}
			}
		}
		return false
	}
}

// Looping reports a container that ended for the second time, or is held back.
func Looping(o client.Object) bool {
	for _, c := range containers(o) {
		if c.RestartCount >= 2 || c.RestartCount == 1 && c.State.Terminated != nil || Waits("CrashLoopBackOff")(o) {
			return true
		}
	}
	return false
}

// Unscheduled reports a pod that fits no node.
func Unscheduled(o client.Object) bool {
	return PodCondition(o, corev1.PodScheduled) == corev1.ConditionFalse
}

// PodCondition returns the state of a pod's condition; empty for an object that is not a pod.
func PodCondition(o client.Object, kind corev1.PodConditionType) corev1.ConditionStatus {
	if _, ok := o.(*corev1.Pod); ok {
		return condition(o, string(kind))
	}
	return ""
}

// RefusedPods reports a ReplicaSet that cannot create its pods.
func RefusedPods(o client.Object) bool {
	_, ok := o.(*appsv1.ReplicaSet)
	return ok && condition(o, string(appsv1.ReplicaSetReplicaFailure)) == corev1.ConditionTrue
}

// Stalled reports a Deployment whose rollout has missed its deadline.
func Stalled(o client.Object) bool {
	_, ok := o.(*appsv1.Deployment)
	return ok && condition(o, string(appsv1.DeploymentProgressing)) == corev1.ConditionFalse
}

// FailedRun reports a Job that has failed.
func FailedRun(o client.Object) bool {
	_, ok := o.(*batchv1.Job)
	return ok && condition(o, string(batchv1.JobFailed)) == corev1.ConditionTrue
}

// condition returns the state of an object's condition; empty if it has none.
func condition(o client.Object, kind string) corev1.ConditionStatus {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(raw, "status", "conditions")
	for _, c := range conditions {
		if of, ok := c.(map[string]any); ok && of["type"] == kind {
			state, _ := of["status"].(string)
			return corev1.ConditionStatus(state)
		}
	}
	return ""
}

// Says returns an event of one of these reasons that was seen so often.
func Says(times int32, reasons ...string) Signal {
	return func(o client.Object) bool {
		ev, ok := o.(*corev1.Event)
		if !ok {
			return false
		}
		for _, reason := range reasons {
			if ev.Reason == reason && max(ev.Count, 1) >= times {
				return true
			}
		}
		return false
	}
}
