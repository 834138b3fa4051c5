package workloadhealth

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
)

// waitsFor returns what a workload's controller has to do yet; empty for nothing.
func waitsFor(o client.Object, pods []*corev1.Pod) string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		s := o.Status
		return rollout(ptr.Deref(o.Spec.Replicas, 1), s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, pods)
	case *appsv1.StatefulSet:
		s, want := o.Status, ptr.Deref(o.Spec.Replicas, 1)
		updated := s.UpdatedReplicas
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || o.Spec.UpdateStrategy.RollingUpdate != nil &&
			ptr.Deref(o.Spec.UpdateStrategy.RollingUpdate.Partition, 0) > 0 {
			updated = want // older pods are meant to stay
		}
		return rollout(want, s.Replicas, updated, s.ReadyReplicas, pods)
	case *appsv1.DaemonSet:
		s, updated := o.Status, o.Status.UpdatedNumberScheduled
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			updated = s.DesiredNumberScheduled
		}
		return rollout(s.DesiredNumberScheduled, s.CurrentNumberScheduled, updated, s.NumberReady, pods)
	case *appsv1.ReplicaSet:
		s := o.Status
		return rollout(ptr.Deref(o.Spec.Replicas, 1), s.Replicas, s.Replicas, s.ReadyReplicas, pods)
	case *batchv1.Job:
		if !Succeeded(o) && !ptr.Deref(o.Spec.Suspend, false) {
			return "waits for its run to end"
		}
	case *corev1.Pod:
		if o.Status.Phase != corev1.PodSucceeded && !diagnose.Ready(o) {
			return rollout(1, 1, 1, 0, []*corev1.Pod{o})
		}
	}
	return ""
}

// rollout returns what a rolling update has to do yet. The pods are those of the newest spec: ready
// counts those of an older one with them.
func rollout(want, have, updated, ready int32, pods []*corev1.Pod) string {
	newest := int32(0)
	for _, pod := range pods {
		if pod.DeletionTimestamp.IsZero() && diagnose.Ready(pod) {
			newest++
		}
	}
	of := "pods"
	if ready >= want && have > want && newest < want {
		ready, of = newest, "pods of the newest spec"
	}
	switch {
	case updated < want:
		return fmt.Sprintf("waits for pods of the newest spec: %d of %d are there", updated, want)
	case ready < want:
		for _, pod := range pods {
			if container, state := diagnose.WaitsFor(pod); container != "" {
				return fmt.Sprintf("waits for %s: %d of %d are ready; container %s of pod %s: %s", of, ready, want, container, pod.Name, state)
			}
		}
		return fmt.Sprintf("waits for %s: %d of %d are ready", of, ready, want)
	case have > want:
		return fmt.Sprintf("waits for %d older pods to stop", have-want)
	}
	return ""
}
