package failures

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
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

// Disowned reports a pod that its kubelet calls ready and the cluster does not.
func Disowned(o client.Object) bool {
	return PodCondition(o, corev1.PodReady) == corev1.ConditionFalse && PodCondition(o, corev1.ContainersReady) == corev1.ConditionTrue
}

// PodCondition returns the state of a pod's condition; empty for an object that is not a pod.
func PodCondition(o client.Object, kind corev1.PodConditionType) corev1.ConditionStatus {
	if pod, ok := o.(*corev1.Pod); ok {
		for _, c := range pod.Status.Conditions {
			if c.Type == kind {
				return c.Status
			}
		}
	}
	return ""
}

// RefusedPods reports a ReplicaSet that cannot create its pods.
func RefusedPods(o client.Object) bool {
	if rs, ok := o.(*appsv1.ReplicaSet); ok {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// Stalled reports a Deployment whose rollout has missed its deadline.
func Stalled(o client.Object) bool {
	if d, ok := o.(*appsv1.Deployment); ok {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
				return true
			}
		}
	}
	return false
}

// FailedRun reports a Job that has failed.
func FailedRun(o client.Object) bool {
	if j, ok := o.(*batchv1.Job); ok {
		for _, c := range j.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
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
