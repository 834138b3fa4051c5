package app

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// figures are the numbers of pods that a workload's controller reports, in the same form for every
// kind.
type figures struct {
	seen                                         bool // they speak of the newest spec
	desired, replicas, updated, ready, available int32
	misplaced                                    int32 // pods of a DaemonSet where none belongs
}

func figuresOf(w client.Object) figures {
	switch w := w.(type) {
	case *appsv1.Deployment:
		s := w.Status
		return figures{
			seen: s.ObservedGeneration >= w.Generation, desired: ptr.Deref(w.Spec.Replicas, 1),
			replicas: s.Replicas, updated: s.UpdatedReplicas, ready: s.ReadyReplicas, available: s.AvailableReplicas,
		}
	case *appsv1.StatefulSet:
		s := w.Status
		return figures{
			seen: s.ObservedGeneration >= w.Generation, desired: ptr.Deref(w.Spec.Replicas, 1),
			replicas: s.Replicas, updated: s.UpdatedReplicas, ready: s.ReadyReplicas, available: s.AvailableReplicas,
		}
	case *appsv1.DaemonSet:
		s := w.Status
		return figures{
			seen: s.ObservedGeneration >= w.Generation, desired: s.DesiredNumberScheduled,
			replicas: s.CurrentNumberScheduled, updated: s.UpdatedNumberScheduled,
			ready: s.NumberReady, available: s.NumberAvailable, misplaced: s.NumberMisscheduled,
		}
	case *batchv1.Job:
		ready := ptr.Deref(w.Status.Ready, 0)
		return figures{
			seen: true, desired: w.Status.Active, replicas: w.Status.Active, updated: w.Status.Active,
			ready: ready, available: ready,
		}
	case *batchv1.CronJob:
		n := int32(len(w.Status.Active)) //nolint:gosec // runs at a time
		return figures{seen: true, desired: n, replicas: n, updated: n}
	}
	return figures{}
}

// complete reports whether every pod is of the newest spec and available, and none other is left.
func (f figures) complete() bool {
	return f.seen && f.replicas == f.desired && f.updated == f.desired && f.ready == f.desired &&
		f.available == f.desired && f.misplaced == 0
}
